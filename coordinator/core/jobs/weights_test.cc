// The final weights of a job: where they go, and that they are whole before it has succeeded.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using enum JobState;

// A job of two ranks that have done all of their steps and written their weights; the commands of the last word.
std::vector<Command> finish_all(World& world) {
  const std::string name = world.run();
  world.run_steps(name, 0, 3);
  world.finish(name, 0);
  return world.finish(name, 1);
}

TEST(Weights, every_rank_is_told_their_place_and_its_marker) {
  World world(with_state());
  world.run();
  const auto assignments = messages<Assignment>(world, world.sent);
  ASSERT_EQ(assignments.size(), 2u);
  for (const Assignment& assignment : assignments) {
    EXPECT_EQ(assignment.weights.directory, "/state/jobs/tiny/weights");
    EXPECT_EQ(assignment.weights.marker, of<PlanAttempt>(world.sent)[0].weights.marker);
  }
  World other(with_state());
  other.now.unix_ms += 5;
  other.run();
  EXPECT_NE(messages<Assignment>(other, other.sent)[0].weights.marker, assignments[0].weights.marker);
}

TEST(Weights, job_succeeds_only_when_they_are_whole) {
  World world(with_state());
  const auto commits = of<CommitWeights>(finish_all(world));
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].weights.directory, "/state/jobs/tiny/weights");
  EXPECT_EQ(world.state_of("tiny"), Running);
  EXPECT_EQ(view_job(world.state, "tiny", false, 0)->weights_directory, "");
  world.stopped("tiny", 0);  // executors leave meanwhile
  world.stopped("tiny", 1);
  world.tell(WeightsCommitted{"tiny", commits[0].order, commits[0].weights, ok_status()});
  EXPECT_EQ(world.state_of("tiny"), Succeeded);
  EXPECT_EQ(view_job(world.state, "tiny", false, 0)->weights_directory, "/state/jobs/tiny/weights");
}

TEST(Weights, job_whose_weights_cannot_be_kept_fails_with_the_reason) {
  World world(with_state());
  const auto commit = of<CommitWeights>(finish_all(world)).at(0);
  world.tell(WeightsCommitted{"tiny", commit.order, commit.weights, resource_exhausted("the disk is full")});
  EXPECT_EQ(world.state_of("tiny"), Failed);
  EXPECT_EQ(world.reason_of("tiny"), "the final weights cannot be kept: the disk is full");
  EXPECT_EQ(view_job(world.state, "tiny", false, 0)->weights_directory, "");
}

TEST(Weights, those_of_a_job_that_was_cancelled_meanwhile_are_discarded) {
  World world(with_state());
  const auto commit = of<CommitWeights>(finish_all(world)).at(0);
  world.tell(Cancel{7, "tiny", "bob"});
  const auto commands = world.tell(WeightsCommitted{"tiny", commit.order, commit.weights, ok_status()});
  EXPECT_EQ(world.state_of("tiny"), Cancelled);
  ASSERT_EQ(of<DiscardWeights>(commands).size(), 1u);
  EXPECT_EQ(of<DiscardWeights>(commands)[0].weights.directory, "/state/jobs/tiny/weights");
}

TEST(Weights, coordinator_without_a_place_for_them_asks_nobody_to_write) {
  World world;
  finish_all(world);
  EXPECT_EQ(world.state_of("tiny"), Succeeded);
  EXPECT_EQ(messages<Assignment>(world, world.sent)[0].weights.directory, "");
  EXPECT_EQ(view_job(world.state, "tiny", false, 0)->weights_directory, "");
}

}  // namespace
}  // namespace penstock::coordinator
