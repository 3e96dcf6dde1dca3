#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "worker/agent/frame_stream.h"
#include "worker/agent/line_capture.h"
#include "worker/agent/outbox.h"

namespace penstock::worker {
namespace {

using testing::ElementsAre;

std::string framed(std::string_view payload) {
  std::string bytes;
  for (size_t i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(payload.size() >> (8 * i)));
  return bytes.append(payload);
}

TEST(FrameReader, frames_arrive_whole_however_they_are_cut) {
  const std::string bytes = framed("one") + framed("") + framed(std::string(300, 'x'));
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader(1000);
    std::vector<std::string> frames;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.push(std::string_view(bytes).substr(at, piece));
      for (auto frame = reader.next(); frame.ok() && *frame; frame = reader.next()) frames.push_back(**frame);
    }
    ASSERT_THAT(frames, ElementsAre("one", "", std::string(300, 'x'))) << piece;
  }
}

TEST(FrameReader, length_over_the_bound_is_refused_before_its_bytes_come) {
  // Otherwise one bad length would make the daemon allocate four gigabytes.
  FrameReader reader(1000);
  reader.push("\xff\xff\xff\xff");
  EXPECT_EQ(reader.next().status().code(), StatusCode::kInvalidArgument);
}

TEST(FrameWriter, what_the_socket_does_not_take_waits_up_to_the_bound) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  FrameWriter writer(4u << 20);
  const std::string big(3u << 20, 'b');
  ASSERT_TRUE(writer.push(big).ok());
  ASSERT_TRUE(writer.write_to(ends[0]).ok());
  EXPECT_FALSE(writer.empty());
  EXPECT_EQ(writer.push(std::string(4u << 20, 'c')).code(), StatusCode::kResourceExhausted);
  FrameReader reader(big.size());
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = read(ends[1], buffer.data(), buffer.size());
    ASSERT_GT(got, 0);
    reader.push(std::string_view(buffer.data(), static_cast<size_t>(got)));
    ASSERT_TRUE(writer.write_to(ends[0]).ok());
    const auto frame = reader.next();
    ASSERT_TRUE(frame.ok());
    if (!*frame) continue;
    EXPECT_EQ(**frame, big);
    break;
  }
  close(ends[1]);
  ASSERT_TRUE(writer.push("more").ok());
  EXPECT_EQ(writer.write_to(ends[0]).code(), StatusCode::kUnavailable);
  close(ends[0]);
}

TEST(LineCapture, lines_are_cut_at_their_ends) {
  LineCapture capture;
  capture.push("one\ntwo\r\nth");
  EXPECT_THAT(capture.take().lines, ElementsAre("one", "two"));
  capture.push("ree\n\nlast");
  EXPECT_THAT(capture.take().lines, ElementsAre("three", ""));
  capture.finish();
  EXPECT_THAT(capture.take().lines, ElementsAre("last"));
  EXPECT_EQ(capture.last_line(), "last");
}

TEST(LineCapture, long_line_is_cut_and_says_so) {
  LineCapture capture;
  for (int i = 0; i < 100; ++i) capture.push(std::string(1000, 'x'));
  capture.push("\nnext\n");
  const auto lines = capture.take().lines;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], std::string(LineCapture::kLongestLine, 'x') + " [cut]");
  EXPECT_EQ(lines[1], "next");
}

TEST(LineCapture, flood_is_dropped_and_counted) {
  LineCapture capture;
  for (size_t i = 0; i < LineCapture::kMostLines + 70; ++i) capture.push("line\n");
  const auto batch = capture.take();
  EXPECT_EQ(batch.lines.size(), LineCapture::kMostLines);
  EXPECT_EQ(batch.dropped, 70);
  EXPECT_TRUE(capture.empty());
}

v1::WorkerMessage log_of(int rank) {
  v1::WorkerMessage message;
  message.mutable_log_batch()->set_rank(rank);
  message.mutable_log_batch()->add_lines("line");
  return message;
}
v1::WorkerMessage step(int64_t number) {
  v1::WorkerMessage message;
  message.mutable_step_report()->set_step(number);
  return message;
}

TEST(Outbox, what_a_session_did_not_write_comes_first_again) {
  Outbox outbox;
  outbox.push(step(3));
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat();
  outbox.put_back({step(1), heartbeat, step(2)});
  std::vector<int64_t> steps;
  for (; !outbox.empty(); outbox.pop()) steps.push_back(outbox.front().step_report().step());
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
}

TEST(Outbox, log_lines_beyond_the_bound_are_counted_in_a_later_batch) {
  // A chatty rank must not push the reports out while the coordinator is away.
  Outbox outbox;
  outbox.push(step(1));
  for (size_t i = 0; i < Outbox::kMostLogs + 5; ++i) outbox.push(log_of(0));
  outbox.push(step(2));
  EXPECT_EQ(outbox.front().step_report().step(), 1);
  outbox.pop();
  outbox.pop();
  outbox.push(log_of(0));
  int64_t dropped = 0;
  int64_t reports = 0;
  for (; !outbox.empty(); outbox.pop()) {
    dropped += outbox.front().log_batch().dropped();
    reports += outbox.front().has_step_report() ? 1 : 0;
  }
  EXPECT_EQ(dropped, 5);
  EXPECT_EQ(reports, 1);
}

TEST(Outbox, oldest_reports_are_lost_beyond_the_bound) {
  Outbox outbox;
  for (size_t i = 0; i < Outbox::kMostReports + 2; ++i) outbox.push(step(static_cast<int64_t>(i)));
  EXPECT_EQ(outbox.front().step_report().step(), 2);
  EXPECT_EQ(outbox.reports_lost(), 2);
}

}  // namespace
}  // namespace penstock::worker
