// Checkpoints of running jobs: when they are committed, refused, and what of them is removed.
#include <gmock/gmock.h>

#include "coordinator/core/testing/restarted_job.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

TEST(Checkpoint, is_committed_when_all_ranks_have_written_and_the_steps_before_it_are_durable) {
  // One of steps that a crash would lose could not be gone on from.
  World world(with_state());
  const std::string name = world.run(kKept);
  world.all_report(name, 0);
  world.durable_at_once = false;
  world.wrote(name, 0, 2);  // overtakes the report of its step
  world.wrote(name, 1, 2);
  world.report(name, 0, 1);
  EXPECT_TRUE(of<CommitCheckpoint>(world.report(name, 1, 1)).empty());
  const auto commits = of<CommitCheckpoint>(world.make_durable());
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].step, 2);
  EXPECT_EQ(commits[0].place.directory, "/state/jobs/tiny/checkpoints");
  EXPECT_EQ(world.archive.jobs()[0].losses.size(), 2u);
  world.durable_at_once = true;
  world.keep(name, 2);
  const auto view = view_job(world.state, name, false, 0);
  EXPECT_EQ(view->durable_step, 2);
  EXPECT_EQ(view->weights_digest, std::string(32, 'd'));
  EXPECT_EQ(view->checkpoints_directory, "/state/jobs/tiny/checkpoints");
  EXPECT_EQ(world.archive.jobs()[0].status.durable_step, 2);
}

TEST(Checkpoint, that_a_rank_could_not_write_is_said_and_the_job_goes_on) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.run_steps(name, 0, 2);
  world.keep(name, 2);
  for (int64_t step = 2; step < 4; ++step) world.all_report(name, step);
  world.wrote(name, 0, 4);
  const auto commands = world.wrote(name, 1, 4, "No space left on device");
  EXPECT_TRUE(of<CommitCheckpoint>(commands).empty());
  ASSERT_EQ(of<DiscardCheckpoint>(commands).size(), 1u);
  EXPECT_EQ(of<DiscardCheckpoint>(commands)[0].step, 4);
  EXPECT_EQ(world.state_of(name), Running);
  EXPECT_EQ(
      world.reason_of(name),
      "checkpoint of step 4 was not written: rank 1 on worker-1: No space left on device; the last one is of "
      "step 2");
  world.tell(
      CheckpointCommitted{name, world.job(name).attempt->order, 6, data_loss("a part is damaged"), ""});
  EXPECT_THAT(world.reason_of(name), HasSubstr("checkpoint of step 6 was not kept: a part is damaged"));
  EXPECT_EQ(world.job(name).status.durable_step, 2);
}

TEST(Checkpoint, reports_that_do_not_belong_are_refused) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.run_steps(name, 0, 2);
  world.wrote(name, 0, 3);    // none is due then
  world.wrote(name, 0, 100);  // beyond the end
  EXPECT_EQ(world.refused(Refusal::Malformed), 2);
  world.wrote(name, 0, 2);
  EXPECT_EQ(world.refused(Refusal::Duplicate), 1);
  world.say("worker-0", CheckpointWritten{{name, 7, 1}, RankIndex(0), 4, ""});
  EXPECT_EQ(world.refused(Refusal::Stale), 1);
}

TEST(Checkpoint, last_one_is_waited_for_before_the_job_succeeds) {
  World world;  // without final weights
  JobShape shape = kKept;
  shape.steps = 2;
  shape.extra = "checkpoint: {every: 2, directory: /elsewhere}\n";
  const std::string name = world.run(shape);
  world.run_steps(name, 0, 2);
  world.all_finish(name);
  EXPECT_EQ(world.state_of(name), Running);
  world.keep(name, 2);
  EXPECT_EQ(world.state_of(name), Succeeded);
}

TEST(Recovery, what_an_attempt_has_not_finished_is_removed_when_its_last_executor_is_gone) {
  // A rank that still lives would write on.
  World world(with_state());
  const std::string name = world.run(kKept);
  const WeightsPlace place = world.job(name).attempt->checkpoints;
  EXPECT_TRUE(of<RemoveDrafts>(world.tell(Cancel{1, name, "bob"})).empty());
  EXPECT_TRUE(of<RemoveDrafts>(world.stopped(name, 0)).empty());
  const auto removed = of<RemoveDrafts>(world.stopped(name, 1));
  ASSERT_EQ(removed.size(), 1u);
  EXPECT_EQ(removed[0].job, name);
  EXPECT_EQ(removed[0].place.directory, "/state/jobs/tiny/checkpoints");
  EXPECT_EQ(removed[0].place.marker, place.marker);
}

TEST(Recovery, what_its_ranks_wrote_last_is_kept_though_they_have_left) {
  // The steps come on record first, and ranks that have done everything do not wait for that.
  World world(with_state());
  JobShape shape = kKept;
  shape.steps = 2;
  const std::string name = world.run(shape);
  world.durable_at_once = false;
  world.run_steps(name, 0, 2);
  for (int rank = 0; rank < 2; ++rank) {
    world.finish(name, rank);
    EXPECT_TRUE(of<RemoveDrafts>(world.stopped(name, rank)).empty());
  }
  const auto committing = of<CommitCheckpoint>(world.make_durable());
  ASSERT_EQ(committing.size(), 1u);
  EXPECT_EQ(committing[0].step, 2);
  world.durable_at_once = true;
  world.tell(CheckpointCommitted{name, committing[0].order, 2, ok_status(), std::string(32, 'd')});
  EXPECT_EQ(world.job(name).status.durable_step, 2);
  const auto removed = of<RemoveDrafts>(
      world.tell(WeightsCommitted{name, committing[0].order, world.job(name).attempt->weights, ok_status()}));
  EXPECT_EQ(world.state_of(name), Succeeded);
  EXPECT_EQ(removed.size(), 1u);
}

}  // namespace
}  // namespace penstock::coordinator
