#include "coordinator/core/jobs/step_window.h"

#include <gtest/gtest.h>

namespace penstock::coordinator {
namespace {

using enum StepWindow::Added;

StepReport report(int rank, int64_t step) {
  StepReport r;
  r.rank = RankIndex(rank);
  r.step = step;
  return r;
}

TEST(StepWindow, step_is_committed_when_the_last_rank_reports) {
  StepWindow window(3, 0);
  EXPECT_EQ(window.add(report(2, 0), 64), Taken);
  EXPECT_EQ(window.add(report(0, 0), 64), Taken);
  EXPECT_FALSE(window.take_committed());
  EXPECT_EQ(window.add(report(1, 0), 64), Taken);
  const auto reports = window.take_committed();
  ASSERT_TRUE(reports);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ((*reports)[static_cast<size_t>(rank)].rank, RankIndex(rank));
  EXPECT_EQ(window.committed(), 1);
}

TEST(StepWindow, steps_are_committed_in_order_however_reports_arrive) {
  StepWindow window(2, 0);
  for (int64_t step = 4; step >= 0; --step) {
    EXPECT_EQ(window.add(report(0, step), 64), Taken);
    EXPECT_EQ(window.add(report(1, 4 - step), 64), Taken);
  }
  for (int64_t step = 0; step < 5; ++step) {
    const auto reports = window.take_committed();
    ASSERT_TRUE(reports);
    EXPECT_EQ(reports->front().step, step);
  }
  EXPECT_FALSE(window.take_committed());
}

TEST(StepWindow, duplicate_is_refused_before_and_after_the_commit) {
  StepWindow window(1, 0);
  EXPECT_EQ(window.add(report(0, 1), 64), Taken);
  EXPECT_EQ(window.add(report(0, 1), 64), Duplicate);
  EXPECT_EQ(window.add(report(0, 0), 64), Taken);
  ASSERT_TRUE(window.take_committed());
  EXPECT_EQ(window.add(report(0, 0), 64), Duplicate);
}

TEST(StepWindow, reports_far_ahead_are_refused_so_that_memory_is_bounded) {
  StepWindow window(2, 10);
  EXPECT_EQ(window.add(report(0, 13), 4), Taken);
  EXPECT_EQ(window.add(report(0, 14), 4), OutOfWindow);
  EXPECT_EQ(window.add(report(0, INT64_MAX), 4), OutOfWindow);
  EXPECT_EQ(window.waiting(), 4u);
  EXPECT_EQ(window.add(report(0, 9), 4), Duplicate);
}

TEST(StepWindow, next_of_a_rank_is_what_it_works_on) {
  StepWindow window(2, 0);
  window.add(report(0, 0), 64);
  window.add(report(0, 1), 64);
  window.add(report(1, 0), 64);
  ASSERT_TRUE(window.take_committed());
  EXPECT_EQ(window.next_of(RankIndex(0)), 2);
  EXPECT_EQ(window.next_of(RankIndex(1)), 1);
}

}  // namespace
}  // namespace penstock::coordinator
