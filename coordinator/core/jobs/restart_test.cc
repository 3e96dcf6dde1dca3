#include "coordinator/core/jobs/restart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr plan::RestartSpec kSpec{.max = 5, .no_progress_limit = 3};

TEST(Restart, job_that_asked_for_none_fails_with_its_own_reason) {
  const RestartVerdict verdict = judge_restart({.max = 0, .no_progress_limit = 1}, 0, 7);
  EXPECT_FALSE(verdict.restarts);
  EXPECT_EQ(verdict.exit_code, ExitCode::Failed);
  EXPECT_EQ(verdict.why, "");
}

TEST(Restart, attempts_without_a_new_checkpoint_end_it_as_no_progress) {
  EXPECT_TRUE(judge_restart(kSpec, 2, 2).restarts);
  const RestartVerdict verdict = judge_restart(kSpec, 2, 3);
  EXPECT_FALSE(verdict.restarts);
  EXPECT_EQ(verdict.exit_code, ExitCode::NoProgress);
  EXPECT_THAT(verdict.why, HasSubstr("3 attempts"));
}

TEST(Restart, budget_is_of_all_restarts) {
  EXPECT_TRUE(judge_restart(kSpec, 4, 0).restarts);
  const RestartVerdict verdict = judge_restart(kSpec, 5, 0);
  EXPECT_FALSE(verdict.restarts);
  EXPECT_EQ(verdict.exit_code, ExitCode::Failed);
  EXPECT_THAT(verdict.why, HasSubstr("restarted 5 times"));
}

TEST(Restart, first_one_comes_at_once_and_later_ones_wait_longer_up_to_a_bound) {
  const plan::RestartSpec patient{.max = 1'000'000, .no_progress_limit = 1'000'000};
  EXPECT_EQ(judge_restart(patient, 0, 0).delay, Duration{});
  EXPECT_EQ(judge_restart(patient, 0, 1).delay, Duration{});
  EXPECT_EQ(judge_restart(patient, 0, 2).delay, 1s);
  EXPECT_EQ(judge_restart(patient, 0, 3).delay, 2s);
  EXPECT_EQ(judge_restart(patient, 0, 7).delay, 30s);
  EXPECT_EQ(judge_restart(patient, 0, 900'000).delay, 30s);
}

}  // namespace
}  // namespace penstock::coordinator
