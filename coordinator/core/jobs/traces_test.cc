#include "coordinator/core/jobs/traces.h"

#include <gmock/gmock.h>

namespace penstock::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Added = Traces::Added;

TraceBytes bytes(size_t count) {
  return std::make_shared<const std::string>(count, 'x');
}

void add_whole(Traces& traces, int64_t step, size_t each = 10) {
  EXPECT_EQ(traces.add(step, RankIndex(1), 2, bytes(each)), Added::Taken);
  EXPECT_EQ(traces.add(step, RankIndex(0), 2, bytes(each)), Added::Complete);
}

TEST(Traces, step_is_shown_when_all_of_its_ranks_are_in) {
  Traces traces;
  EXPECT_EQ(traces.add(2, RankIndex(1), 2, bytes(3)), Added::Taken);
  EXPECT_EQ(traces.find(2), nullptr);
  EXPECT_THAT(traces.complete(), IsEmpty());
  EXPECT_EQ(traces.add(2, RankIndex(1), 2, bytes(4)), Added::Duplicate);
  EXPECT_EQ(traces.add(2, RankIndex(0), 2, bytes(4)), Added::Complete);
  ASSERT_NE(traces.find(2), nullptr);
  EXPECT_EQ(traces.find(2)->ranks[1]->size(), 3u);
  EXPECT_EQ(traces.bytes(), 7u);
  EXPECT_EQ(traces.find(3), nullptr);
}

TEST(Traces, first_and_newest_steps_are_kept) {
  Traces traces;
  for (const int64_t step : {2, 100, 200, 300}) {
    add_whole(traces, step);
    EXPECT_THAT(traces.trim(1000), IsEmpty());
  }
  add_whole(traces, 400);
  EXPECT_THAT(traces.trim(1000), ElementsAre(100));
  EXPECT_THAT(traces.complete(), ElementsAre(2, 200, 300, 400));
  EXPECT_EQ(traces.add(100, RankIndex(0), 2, bytes(1)), Added::Old);
}

TEST(Traces, bytes_beyond_the_bound_take_the_older_steps) {
  Traces traces;
  add_whole(traces, 2);
  add_whole(traces, 100);
  add_whole(traces, 200);
  EXPECT_THAT(traces.trim(45), ElementsAre(100));
  EXPECT_THAT(traces.complete(), ElementsAre(2, 200));
  EXPECT_THAT(traces.trim(5), ElementsAre(200, 2));
  EXPECT_EQ(traces.bytes(), 0u);
}

TEST(Traces, step_that_was_never_whole_goes_without_a_word) {
  Traces traces;
  EXPECT_EQ(traces.add(2, RankIndex(0), 2, bytes(10)), Added::Taken);
  EXPECT_THAT(traces.trim(5), IsEmpty());
  EXPECT_EQ(traces.bytes(), 0u);
}

TEST(Traces, step_of_another_number_of_ranks_begins_anew) {
  Traces traces;
  add_whole(traces, 2);
  EXPECT_EQ(traces.add(2, RankIndex(3), 4, bytes(7)), Added::Taken);
  EXPECT_EQ(traces.find(2), nullptr);
  EXPECT_EQ(traces.bytes(), 7u);
  EXPECT_EQ(traces.add(2, RankIndex(0), 1, bytes(5)), Added::Complete);
  EXPECT_EQ(traces.find(2)->ranks.size(), 1u);
  EXPECT_EQ(traces.bytes(), 5u);
}

TEST(Traces, steps_that_wait_for_a_rank_are_bounded_and_forgotten) {
  Traces traces;
  add_whole(traces, 2);
  add_whole(traces, 3);
  for (int64_t step = 4; step < 200; ++step) {
    EXPECT_EQ(traces.add(step, RankIndex(0), 2, bytes(1)), Added::Taken);
    EXPECT_THAT(traces.trim(1000), IsEmpty());
    EXPECT_LE(traces.bytes(), 40 + kTracedStepsAwaited);
  }
  // Of them the newest are kept: a rank that is behind completes them.
  EXPECT_EQ(traces.add(199 - kTracedStepsAwaited + 1, RankIndex(1), 2, bytes(1)), Added::Complete);
  traces.forget_incomplete();
  EXPECT_THAT(traces.complete(), ElementsAre(2, 3, 136));
  EXPECT_EQ(traces.bytes(), 42u);
}

}  // namespace
}  // namespace penstock::coordinator
