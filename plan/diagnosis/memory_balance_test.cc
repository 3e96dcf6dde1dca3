#include "plan/diagnosis/memory_balance.h"

#include <gmock/gmock.h>

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

// The largest and the smallest rank are those of a published run of a 4B model at P=8, the others lie between them.
TEST(JudgeMemory, one_end_near_its_budget_while_the_middle_is_free_is_imbalanced) {
  const MemoryBalance balance =
      judge_memory({26257 * kMiB, 12000 * kMiB, 11000 * kMiB, 10000 * kMiB, 8726 * kMiB}, 28000 * kMiB);
  EXPECT_TRUE(balance.imbalanced);
  EXPECT_EQ(balance.fullest, 0);
  EXPECT_EQ(balance.emptiest, 4);
  EXPECT_THAT(balance.because, HasSubstr("94 % and 31 % of the budget"));
  EXPECT_THAT(balance.advice, HasSubstr("rank 0"));
}

TEST(JudgeMemory, ranks_that_are_all_full_or_all_have_room_are_not) {
  EXPECT_FALSE(judge_memory({95 * kMiB, 90 * kMiB, 80 * kMiB}, 100 * kMiB).imbalanced);
  EXPECT_FALSE(judge_memory({50 * kMiB, 20 * kMiB, 20 * kMiB}, 100 * kMiB).imbalanced);
}

TEST(JudgeMemory, without_a_budget_the_numbers_are_said) {
  const MemoryBalance balance = judge_memory({30 * kMiB, 10 * kMiB, 10 * kMiB}, 0);
  EXPECT_FALSE(balance.imbalanced);
  EXPECT_DOUBLE_EQ(balance.ratio, 3);
  EXPECT_THAT(balance.because, HasSubstr("rank 0 holds 30.0 MiB, 3.00 times the median rank"));
  EXPECT_EQ(judge_memory({}, 5).fullest, -1);
}

}  // namespace
}  // namespace penstock::plan
