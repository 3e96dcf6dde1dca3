#include "coordinator/core/jobs/log_ring.h"

#include <gtest/gtest.h>

namespace penstock::coordinator {
namespace {

LogLineView line(const std::string& text, int rank = 0) {
  return {1, RankIndex(rank), "worker-0", text};
}

TEST(LogRing, reading_goes_on_where_the_last_page_ended) {
  LogRing ring;
  for (int i = 0; i < 5; ++i) ring.add(line(std::to_string(i)), {});
  const LogPage first = ring.read(0, RankIndex(), 2);
  ASSERT_EQ(first.lines.size(), 2u);
  EXPECT_EQ(first.lines[1].text, "1");
  const LogPage second = ring.read(first.next, RankIndex(), 100);
  ASSERT_EQ(second.lines.size(), 3u);
  EXPECT_EQ(second.lines[0].text, "2");
  EXPECT_EQ(second.lost, 0u);
  EXPECT_TRUE(ring.read(second.next, RankIndex(), 100).lines.empty());
}

TEST(LogRing, reader_that_falls_behind_is_told_how_many_lines_it_lost) {
  LogRing ring;
  const LogLimits limits{.lines = 3};
  for (int i = 0; i < 10; ++i) ring.add(line(std::to_string(i)), limits);
  const LogPage page = ring.read(2, RankIndex(), 100);
  EXPECT_EQ(page.lost, 5u);
  ASSERT_EQ(page.lines.size(), 3u);
  EXPECT_EQ(page.lines[0].text, "7");
}

TEST(LogRing, memory_is_bounded_by_bytes_too) {
  // Ten thousand lines of any length would be no bound.
  LogRing ring;
  const LogLimits limits{.lines = 10'000, .bytes = 10'000, .line_bytes = 1000};
  for (int i = 0; i < 1000; ++i) ring.add(line(std::string(5000, 'x')), limits);
  EXPECT_LE(ring.bytes(), 10'000u);
  EXPECT_GE(ring.lines(), 1u);
  const LogPage page = ring.read(0, RankIndex(), 1);
  EXPECT_LT(page.lines[0].text.size(), 1100u);
  EXPECT_NE(page.lines[0].text.find("(cut)"), std::string::npos);
}

TEST(LogRing, filter_by_rank_skips_the_others_and_moves_the_cursor_past_them) {
  LogRing ring;
  ring.add(line("a", 0), {});
  ring.add(line("b", 1), {});
  ring.add(line("c", 0), {});
  const LogPage page = ring.read(0, RankIndex(1), 100);
  ASSERT_EQ(page.lines.size(), 1u);
  EXPECT_EQ(page.lines[0].text, "b");
  EXPECT_EQ(page.next, 3u);
}

TEST(LogRing, clear_keeps_the_numbering) {
  LogRing ring;
  ring.add(line("a"), {});
  ring.clear();
  EXPECT_EQ(ring.next(), 1u);
  ring.add(line("b"), {});
  const LogPage page = ring.read(0, RankIndex(), 10);
  EXPECT_EQ(page.lost, 1u);
  ASSERT_EQ(page.lines.size(), 1u);
  EXPECT_EQ(page.lines[0].text, "b");
}

}  // namespace
}  // namespace penstock::coordinator
