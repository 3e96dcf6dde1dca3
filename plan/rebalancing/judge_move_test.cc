#include "plan/rebalancing/judge_move.h"

#include <gmock/gmock.h>

#include "plan/rebalancing/testing/noisy_job.h"

namespace penstock::plan {
namespace {

using namespace testing;  // job_of and its words
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A job that was moved to the split that its first run asked for.
struct Moved {
  JobSpec before = job_of({});
  MeasuredRun first = measured(before, {});
  JobSpec after = with_split_of(before, propose(before, {first}, {.steps_left = 1000})->best);
  MeasuredRun second = measured(after, {});

  static JobSpec with_split_of(JobSpec job, const Split& split) {
    job.parallel.split = split;
    return job;
  }
  // Of the steps after the move the oldest `slow` took as long as before.
  MeasuredRun second_with(size_t slow) const {
    MeasuredRun run = second;
    for (size_t step = 0; step < slow; ++step) run.step_seconds[step] = first.step_seconds[step];
    return run;
  }
};

std::optional<LastMove> judged(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  const auto move = judge_last_move(job, runs);
  EXPECT_TRUE(move.ok()) << move.status();
  return move.ok() ? *move : std::nullopt;
}

Proposal proposed(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  const StatusOr<Proposal> proposal = propose(job, runs, {.steps_left = 1000});
  EXPECT_TRUE(proposal.ok()) << proposal.status();
  return proposal.value_or(Proposal{});
}

TEST(JudgeLastMove, gain_that_came_is_kept_and_one_that_did_not_is_undone) {
  const Moved job;
  const auto paid = judged(job.after, {job.first, job.second});
  ASSERT_TRUE(paid);
  EXPECT_EQ(paid->outcome, MoveOutcomeSoFar::Paid) << paid->because;
  EXPECT_EQ(paid->before, job.before.parallel.split);
  EXPECT_NEAR(paid->gain, paid->predicted_gain, 0.03);
  const auto failed = judged(job.after, {job.first, job.second_with(40)});
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->outcome, MoveOutcomeSoFar::Failed);
  EXPECT_THAT(failed->because, HasSubstr("less than half"));
  const SplitDecision decision = decide(proposed(job.after, {job.first, job.second_with(40)}), failed);
  EXPECT_EQ(decision.verdict, SplitVerdict::Undo);
  EXPECT_EQ(decision.split, job.before.parallel.split);
  EXPECT_EQ(decision.because, failed->because);
}

// A worker was lost meanwhile: what the move brought is told by the newest run still.
TEST(JudgeLastMove, newest_run_of_the_new_split_is_held_against_the_last_one_of_the_old) {
  const Moved job;
  const auto move = judged(job.after, {job.first, job.second_with(40), job.second});
  ASSERT_TRUE(move);
  EXPECT_EQ(move->before, job.before.parallel.split);
  EXPECT_EQ(move->outcome, MoveOutcomeSoFar::Paid);
}

TEST(JudgeLastMove, what_differs_in_more_than_its_split_is_not_judged) {
  const Moved job;
  EXPECT_FALSE(judged(job.before, {job.first, job.first}));
  MeasuredRun other = job.first;
  other.schedule = "gpipe";
  EXPECT_FALSE(judged(job.after, {other, job.second}));
}

// One slow step right after a move must not stop the job and send it back.
TEST(JudgeLastMove, few_samples_or_halves_that_do_not_agree_leave_it_open) {
  const Moved job;
  const auto early = judged(job.after, {job.first, measured(job.after, {}, 0.02, 6)});
  ASSERT_TRUE(early);
  EXPECT_EQ(early->outcome, MoveOutcomeSoFar::Open);
  EXPECT_THAT(early->because, HasSubstr("by 100 samples of a stage, 96 are there"));
  const auto busy = judged(job.after, {job.first, job.second_with(25)});
  ASSERT_TRUE(busy);
  EXPECT_EQ(busy->outcome, MoveOutcomeSoFar::Open);
  EXPECT_THAT(busy->because, StartsWith("the halves of the steps"));
  const SplitDecision decision = decide(proposed(job.after, {job.first, job.second_with(25)}), busy);
  EXPECT_EQ(decision.verdict, SplitVerdict::Stay);
  EXPECT_EQ(decision.because, busy->because);
  EXPECT_EQ(decision.split, job.after.parallel.split);
}

// To go back is no move that promised something, and what was gone back from is not proposed a second time.
TEST(JudgeLastMove, split_that_was_undone_is_neither_judged_nor_proposed_again) {
  const Moved job;
  const std::vector<MeasuredRun> runs = {job.first, job.second_with(40), job.first};
  EXPECT_FALSE(judged(job.before, runs));
  const Proposal again = proposed(job.before, runs);
  EXPECT_EQ(again.best, job.after.parallel.split);
  EXPECT_FALSE(again.answer.move);
  EXPECT_THAT(again.answer.because, HasSubstr("ran before: "));
  EXPECT_EQ(decide(again, std::nullopt).verdict, SplitVerdict::Stay);
}

TEST(JudgeLastMove, split_that_was_good_before_or_hardly_ran_is_proposed_again) {
  const Moved job;
  EXPECT_TRUE(proposed(job.before, {job.first, job.second, job.first}).answer.move);
  MeasuredRun short_run = measured(job.after, {}, 0.02, 6);
  short_run.step_seconds.assign(6, 2 * step_seconds(job.first));
  EXPECT_TRUE(proposed(job.before, {job.first, short_run, job.first}).answer.move);
}

}  // namespace
}  // namespace penstock::plan
