#include <gmock/gmock.h>

#include "coordinator/core/core.h"
#include "coordinator/core/testing/rebalanced_job.h"

namespace penstock::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::of;
using testing::registration;
using ::testing::SizeIs;
using testing::World;

StatusOr<std::vector<WorkerView>> answer_to(const std::vector<Command>& commands) {
  const std::vector<AnswerWorker> answers = of<AnswerWorker>(commands);
  if (answers.size() != 1) return internal_error("{} answers", answers.size());
  return answers[0].devices;
}

TEST(Cordons, a_drained_worker_keeps_its_ranks_and_gets_no_new_ones) {
  World world;
  const std::string running = world.run({});
  const StatusOr<std::vector<WorkerView>> drained = answer_to(world.tell(Drain{1, "worker-1", "ann"}));
  ASSERT_TRUE(drained.ok()) << drained.status();
  ASSERT_THAT(*drained, SizeIs(1));
  EXPECT_EQ(drained->front().state, "draining");
  EXPECT_EQ(drained->front().drained_by, "ann");
  EXPECT_EQ(world.state_of(running), JobState::Running);

  world.open(registration("worker-2"));
  const std::string next = world.submit({.name = "next"});
  world.tell(Cancel{2, running, "ann"});
  for (int rank = 0; rank < 2; ++rank) world.stopped(running, rank);
  world.tick();
  EXPECT_EQ(worker_views(world.state.fleet)[1].state, "drained");
  EXPECT_EQ(world.state_of(next), JobState::Preparing);
  EXPECT_EQ(world.place_of(next, 0).worker, "worker-0");
  EXPECT_EQ(world.place_of(next, 1).worker, "worker-2");
}

TEST(Cordons, a_job_waits_for_a_drained_worker_and_is_placed_once_it_takes_work) {
  World world;
  world.open(registration("worker-0"));
  world.open(registration("worker-1"));
  world.tell(Drain{1, "worker-0", "ann"});
  const std::string name = world.submit({});
  EXPECT_EQ(world.reason_of(name), "waits for 1 more cpu device: 2 needed, 1 free (worker-0 drained)");
  EXPECT_EQ(take_census(world.state).workers_draining, 1);
  const StatusOr<std::vector<WorkerView>> uncordoned = answer_to(world.tell(Uncordon{2, "worker-0", "ann"}));
  ASSERT_TRUE(uncordoned.ok()) << uncordoned.status();
  EXPECT_EQ(uncordoned->front().drained_by, "");
  world.tick();
  EXPECT_EQ(world.state_of(name), JobState::Preparing);
}

// How a job is moved away from a slow machine: its steps up to the checkpoint are not done again.
TEST(Cordons, a_job_that_is_paused_and_resumed_leaves_a_drained_worker) {
  World world;
  const std::string name = world.run({.steps = 20, .extra = "checkpoint: {every: 5, directory: /kept}\n"});
  world.open(registration("worker-2"));
  world.tell(Drain{1, "worker-0", "ann"});
  world.tell(Pause{2, name, "ann"});
  testing::run_steps(world, name, 0, 5);
  ASSERT_EQ(world.state_of(name), JobState::Paused) << world.reason_of(name);
  for (int rank = 0; rank < 2; ++rank) world.stopped(name, rank);
  world.tell(Resume{3, name, "ann", nullptr});
  world.tick();
  ASSERT_EQ(world.state_of(name), JobState::Preparing) << world.reason_of(name);
  EXPECT_EQ(world.place_of(name, 0).worker, "worker-1");
  EXPECT_EQ(world.place_of(name, 1).worker, "worker-2");
  EXPECT_EQ(world.job(name).attempt->first_step, 5);
  EXPECT_EQ(world.job(name).status.restarts, 0);
}

TEST(Cordons, the_next_attempt_of_a_job_leaves_a_drained_worker) {
  World world;
  const std::string name = world.run({.steps = 20, .extra = "checkpoint: {every: 5, directory: /kept}\n"});
  world.open(registration("worker-2"));
  testing::run_steps(world, name, 0, 5);
  world.tell(Drain{1, "worker-0", "ann"});
  testing::kill_rank(world, name);
  testing::restart(world, name);
  EXPECT_EQ(world.place_of(name, 0).worker, "worker-1");
  EXPECT_EQ(world.place_of(name, 1).worker, "worker-2");
}

TEST(Cordons, outlive_the_coordinator_and_the_workers_process) {
  World world;
  world.open(registration("worker-0"));
  world.tell(Drain{1, "worker-0", "ann"});
  World after;
  after.tell(Restore{world.archive.jobs(), world.archive.cordons()});
  after.open(registration("worker-0", 2));
  EXPECT_EQ(worker_views(after.state.fleet)[0].state, "drained");
  after.tell(Uncordon{2, "worker-0", "bob"});
  EXPECT_THAT(after.archive.cordons(), IsEmpty());
}

TEST(Cordons, are_answered_when_they_are_durable) {
  World world;
  world.open(registration("worker-0"));
  world.durable_at_once = false;
  EXPECT_THAT(of<AnswerWorker>(world.tell(Drain{1, "worker-0", "ann"})), IsEmpty());
  EXPECT_THAT(of<AnswerWorker>(world.tell(Drain{2, "worker-0", "ann"})),
              IsEmpty());  // the first may still be lost
  EXPECT_THAT(of<AnswerWorker>(world.make_durable()), SizeIs(2));
}

TEST(Cordons, of_unknown_workers_are_refused_with_the_nearest_name) {
  World world;
  world.open(registration("worker-0"));
  EXPECT_EQ(message(answer_to(world.tell(Drain{1, "worker-O", "ann"})).status()),
            "drain: worker worker-O: not known; did you mean worker-0?");
  EXPECT_EQ(answer_to(world.tell(Uncordon{2, "other", "ann"})).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(answer_to(world.tell(Uncordon{3, "worker-0", "ann"})).ok());  // it takes work already
}

TEST(Cordons, do_not_pile_up_before_a_store_that_does_not_commit) {
  Options options;
  options.transactions_pending = 1;
  World world(options);
  world.open(registration("worker-0"));
  world.durable_at_once = false;
  world.tell(Drain{1, "worker-0", "ann"});
  const StatusOr<std::vector<WorkerView>> refused = answer_to(world.tell(Uncordon{2, "worker-0", "ann"}));
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(message(refused.status()), HasSubstr("nothing was changed"));
  EXPECT_EQ(world.state.fleet.cordons.size(), 1u);
}

TEST(Cordons, are_bounded) {
  Options options;
  options.workers = 1;
  options.lost_worker_kept = 1s;
  World world(options);
  world.tell(SessionClosed{world.open(registration("worker-0")), "gone"});
  world.tell(Drain{1, "worker-0", "ann"});
  world.tick(2s);
  world.open(registration("worker-1"));
  EXPECT_EQ(answer_to(world.tell(Drain{2, "worker-1", "ann"})).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(
      answer_to(world.tell(Uncordon{3, "worker-0", "ann"})).ok());  // although nobody knows it any more
  EXPECT_TRUE(answer_to(world.tell(Drain{4, "worker-1", "ann"})).ok());
}

}  // namespace
}  // namespace penstock::coordinator
