#include "worker/emulation/links.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "worker/emulation/step_barrier.h"
#include "worker/emulation/testing/manual_timer.h"
#include "worker/transport/in_process.h"

namespace penstock::worker {
namespace {

TimePoint at(Duration since_start) {
  return TimePoint{} + since_start;
}

// Ranks of one process whose endpoints are open.
class Ranks {
 public:
  explicit Ranks(int ranks) : hub_(make_in_process_hub()) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) endpoints_.push_back(make_in_process_endpoint(hub_));
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([this, rank, ranks] {
        const Group group{
            .name = "test", .rank = RankIndex(rank), .ranks = ranks, .bind_address = "127.0.0.1"};
        ASSERT_TRUE(endpoints_[rank]->open(group, rendezvous_, 10s).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  Endpoint& operator[](int rank) { return *endpoints_[rank]; }

 private:
  std::shared_ptr<InProcessHub> hub_;
  InProcessRendezvous rendezvous_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

// One rank's device and links.
struct Host {
  Host(Endpoint& carrier, const EmulatedLinkOptions& options)
      : device(timer), links(carrier, device, options) {}
  TransferId send(int target) { return *links.post_send(RankIndex(target), nullptr, kBytes); }
  TransferId receive(int source) {
    return *links.post_receive(RankIndex(source), slots.emplace_back().data(), kBytes);
  }
  void wait(TransferId id) { ASSERT_TRUE(links.wait(id).ok()); }

  static constexpr int64_t kBytes = 64;
  std::deque<std::array<char, kBytes>> slots;
  ManualTimer timer;
  EmulatedDevice device;
  EmulatedLinks links;
};

// Rank 0 sends, rank 1 receives; both live in one thread, since posting never blocks.
struct Pair {
  explicit Pair(const EmulatedLinkOptions& options)
      : ranks(2), source(ranks[0], options), target(ranks[1], options) {}
  Ranks ranks;
  Host source;
  Host target;
};

constexpr EmulatedLinkOptions kSlow{.ranks = 2, .latency = 3ms, .occupancy = 2ms};

TEST(EmulatedLinks, a_message_comes_when_it_has_passed_its_link_and_then_the_latency) {
  Pair pair(kSlow);
  const TransferId received = pair.target.receive(0);
  pair.source.device.run(10ms);
  const TransferId sent = pair.source.send(1);
  pair.target.wait(received);
  EXPECT_EQ(pair.target.timer.now(), at(15ms));
  pair.source.wait(sent);
  EXPECT_EQ(pair.source.timer.now(), at(12ms));  // its slot is free when the message has left
}

TEST(EmulatedLinks, a_transfer_starts_when_its_receive_is_posted) {
  // What posting early is good for: both messages are made at 10 ms, and wait for rank 1.
  Pair pair(kSlow);
  pair.source.device.run(10ms);
  pair.source.send(1);
  pair.source.send(1);
  pair.target.device.run(40ms);
  const TransferId first = pair.target.receive(0), second = pair.target.receive(0);
  pair.target.wait(first);
  EXPECT_EQ(pair.target.timer.now(), at(40ms + 2ms + 3ms));
  pair.target.wait(second);
  EXPECT_EQ(pair.target.timer.now(), at(40ms + 2 * 2ms + 3ms));
}

TEST(EmulatedLinks, a_transfer_beside_an_action_costs_nothing) {
  Pair pair(kSlow);
  const TransferId received = pair.target.receive(0);
  pair.source.device.run(1ms);
  pair.source.send(1);
  pair.target.device.run(30ms);
  pair.target.wait(received);
  EXPECT_EQ(pair.target.timer.now(), at(30ms));
}

TEST(EmulatedLinks, messages_of_a_link_follow_one_another_whatever_order_they_are_waited_for) {
  Pair pair(kSlow);
  const TransferId first = pair.target.receive(0), second = pair.target.receive(0);
  pair.source.device.run(10ms);
  pair.source.send(1);
  pair.source.send(1);
  pair.target.wait(second);
  EXPECT_EQ(pair.target.timer.now(), at(10ms + 2 * 2ms + 3ms));
  pair.target.wait(first);  // had come before
  EXPECT_EQ(pair.target.timer.now(), at(17ms));
}

TEST(EmulatedLinks, what_is_no_time_of_this_host_is_refused) {
  // A rank whose clock is another host's would make this one sleep for days.
  for (const int64_t left_ns : {INT64_MAX, INT64_MIN, int64_t{86'400'000'000'001}}) {
    Ranks ranks(2);
    Host target(ranks[1], kSlow);
    const TransferId received = target.receive(0);
    std::array<char, Host::kBytes> message{};
    std::memcpy(message.data(), &left_ns, sizeof(left_ns));
    ASSERT_TRUE(ranks[0].post_send(RankIndex(1), message.data(), Host::kBytes).ok());
    EXPECT_EQ(target.links.wait(received).code(), StatusCode::kDataLoss) << left_ns;
  }
}

TEST(EmulatedLinks, misuse_is_an_error_and_no_crash) {
  Pair pair(kSlow);
  EXPECT_EQ(pair.source.links.wait(TransferId{0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.source.links.wait(TransferId{-1}).code(), StatusCode::kInvalidArgument);
  const TransferId received = pair.target.receive(0);
  pair.source.send(1);
  pair.target.wait(received);
  EXPECT_EQ(pair.target.links.wait(received).code(), StatusCode::kInvalidArgument);  // waited for before
  for (const int peer : {-1, 0, 2}) {
    EXPECT_FALSE(pair.source.links.post_send(RankIndex(peer), nullptr, 64).ok()) << peer;
    EXPECT_FALSE(pair.source.links.post_receive(RankIndex(peer), nullptr, 64).ok()) << peer;
  }
  for (const int64_t bytes : {-1, 0, 7, 4097})  // no room for the time, or larger than a message is here
    EXPECT_EQ(pair.source.links.post_send(RankIndex(1), nullptr, bytes).status().code(),
              StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.source.links.drain().code(), StatusCode::kFailedPrecondition);
}

TEST(EmulatedLinks, an_abort_reaches_who_waits) {
  Pair pair(kSlow);
  const TransferId received = pair.target.receive(0);
  pair.source.links.abort("enough");
  EXPECT_EQ(pair.target.links.wait(received).code(), StatusCode::kAborted);
}

TEST(StepBarrier, nobody_leaves_before_all_have_come) {
  for (const int count : {1, 2, 3, 5, 8}) {
    Ranks ranks(count);
    std::atomic<int> come = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank) {
      threads.emplace_back([&, rank] {
        StepBarrier barrier(ranks[rank], RankIndex(rank), count);
        for (int step = 1; step <= 3; ++step) {
          ++come;
          ASSERT_TRUE(barrier.meet().ok());
          EXPECT_GE(come, step * count);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace penstock::worker
