// Attempts of jobs: who is placed first, what every rank is told, and whose words count.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

TEST(Queue, older_job_that_fits_the_fleet_goes_first) {
  // Otherwise small jobs would starve a big one for ever.
  World world;
  const std::string running = world.run();
  const std::string big = world.submit({.name = "big", .pipeline = 2});
  const std::string small = world.submit({.name = "small", .pipeline = 1});
  world.tick();
  EXPECT_EQ(world.state_of(big), Placing);
  EXPECT_EQ(world.state_of(small), Queued);
  EXPECT_EQ(world.reason_of(small), "waits behind job big");
  world.tell(Cancel{1, running, "bob"});
  world.stopped(running, 0);
  world.tick();
  EXPECT_EQ(world.state_of(small), Queued);
  world.stopped(running, 1);
  world.tick();
  EXPECT_EQ(world.state_of(big), Preparing);
}

TEST(Queue, job_that_the_fleet_cannot_hold_stops_nobody) {
  World world;
  world.open_workers(2);
  const std::string huge = world.submit({.name = "huge", .pipeline = 4});
  const std::string small = world.submit({.name = "small", .pipeline = 2});
  EXPECT_EQ(world.state_of(huge), Placing);
  EXPECT_EQ(world.reason_of(huge), "waits for 2 more cpu devices: 4 needed, 2 free");
  world.tick();
  EXPECT_EQ(world.state_of(small), Preparing);
}

TEST(Attempt, assignment_leaves_only_when_its_number_is_durable) {
  // Otherwise a restarted coordinator could give the same number to other ranks, and fencing would not fence.
  World world;
  world.open_workers(2);
  world.durable_at_once = false;
  world.tell(Submit{1, "ann", "", job_spec({})});
  const auto admitted = world.make_durable();  // the job is; its attempt is being written
  EXPECT_EQ(world.state_of("tiny"), Preparing);
  EXPECT_TRUE(messages<Assignment>(world, admitted).empty());
  const auto started = world.make_durable();
  EXPECT_EQ(messages<Assignment>(world, started).size(), 2u);
}

TEST(Attempt, assignment_waits_for_the_plan_too) {
  World world;
  world.plans_at_once = false;
  world.open_workers(2);
  world.submit({});
  EXPECT_TRUE(messages<Assignment>(world, world.sent).empty());
  const auto planned = world.tell(AttemptPlanned{"tiny", 1, ok_status(), *plan_attempt(*job_spec({}))});
  EXPECT_EQ(messages<Assignment>(world, planned).size(), 2u);
}

TEST(Attempt, plan_of_another_attempt_is_ignored) {
  // A job that was retired while the planner worked may have given its name to another one.
  World world;
  world.plans_at_once = false;
  world.open_workers(2);
  world.submit({});
  const int64_t order = world.job("tiny").attempt->order;
  world.tell(AttemptPlanned{"tiny", order + 1, ok_status(), *plan_attempt(*job_spec({}))});
  world.tell(AttemptPlanned{"tiny", order - 1, internal_error("late"), nullptr});
  EXPECT_EQ(world.state_of("tiny"), Preparing);
  EXPECT_TRUE(messages<Assignment>(world, world.sent).empty());
}

TEST(Attempt, plan_that_fails_fails_the_job_and_frees_the_devices_at_once) {
  World world;
  world.plans_at_once = false;
  world.open_workers(2);
  world.submit({});
  const auto commands = world.tell(AttemptPlanned{"tiny", 1, invalid_argument("no such order"), nullptr});
  EXPECT_TRUE(messages<Abort>(world, commands).empty());
  EXPECT_EQ(world.state_of("tiny"), Failed);
  EXPECT_THAT(world.reason_of("tiny"), HasSubstr("no such order"));
  EXPECT_EQ(take_census(world.state).devices_free, 2);
}

TEST(Attempt, every_rank_gets_its_own_program_and_the_hosts_of_all) {
  World world;
  world.open(registration("worker-0", 7, 1, "left"));
  world.open(registration("worker-1", 9, 1, "right"));
  world.submit({});
  for (int rank = 0; rank < 2; ++rank) {
    const RankPlacement& place = world.place_of("tiny", rank);
    const auto assignments = messages<Assignment>(world, world.sent, place.worker);
    ASSERT_EQ(assignments.size(), 1u);
    const Assignment& assignment = assignments[0];
    EXPECT_EQ(assignment.attempt, (AttemptKey{"tiny", 1, place.incarnation}));
    EXPECT_EQ(assignment.rank, RankIndex(rank));
    EXPECT_EQ(assignment.program.rank, RankIndex(rank));
    EXPECT_EQ(assignment.spec_yaml, job_yaml({}));
    EXPECT_EQ(assignment.split.size(), 2u);
    EXPECT_THAT(assignment.rank_hosts, ::testing::UnorderedElementsAre("left", "right"));
    EXPECT_EQ(assignment.program.links.size(), 2u);
    for (const plan::Link& link : assignment.program.links) EXPECT_NE(link.digest, 0u);
  }
}

TEST(Attempt, ranks_are_told_a_few_in_each_turn) {
  // A thousand large assignments must not hold up whoever asks meanwhile.
  Options options;
  options.assigned_at_once = 2;
  World world(options);
  world.assigns_at_once = false;
  world.open(registration("worker-0", 1, 6));
  const auto first = world.tell(Submit{1, "ann", "", job_spec({.pipeline = 5})});
  EXPECT_EQ(messages<Assignment>(world, first).size(), 2u);
  EXPECT_EQ(of<CallAgain>(first).size(), 1u);
  const auto second = world.tell(AssignMore{});
  EXPECT_EQ(messages<Assignment>(world, second).size(), 2u);
  // What has not been told has no executor to stop.
  EXPECT_EQ(messages<Abort>(world, world.tell(Cancel{2, "tiny", "bob"})).size(), 4u);
  EXPECT_EQ(take_census(world.state).devices_free, 2);
  EXPECT_TRUE(messages<Assignment>(world, world.tell(AssignMore{})).empty());
}

TEST(Attempt, ranks_that_compute_differently_fail_it_by_name) {
  // The same job must give the same bits wherever its ranks are placed.
  World world;
  world.open_workers(2);
  world.submit({});
  world.ready("tiny", 0);
  world.say("worker-1", RankReady{world.key("tiny", 1), RankIndex(1), 1, "another"});
  EXPECT_EQ(world.state_of("tiny"), Failed);
  EXPECT_THAT(world.reason_of("tiny"), HasSubstr("\"test\" as rank 0 on worker-0 has it"));
  EXPECT_THAT(world.reason_of("tiny"), HasSubstr("\"another\" of rank 1 on worker-1"));
}

TEST(Attempt, job_runs_when_every_rank_is_ready) {
  World world;
  world.open_workers(2);
  world.submit({});
  EXPECT_EQ(world.state_of("tiny"), Preparing);
  world.ready("tiny", 1);
  EXPECT_EQ(world.state_of("tiny"), Preparing);
  EXPECT_EQ(world.reason_of("tiny"), "1 of 2 ranks are ready");
  world.ready("tiny", 0);
  EXPECT_EQ(world.state_of("tiny"), Running);
  EXPECT_EQ(worker_views(world.state.fleet)[0].executor_pid, 4000);
}

TEST(Attempt, ranks_that_do_not_get_ready_fail_the_job_by_name) {
  World world;
  world.open_workers(2);
  world.submit({});
  world.ready("tiny", 0);
  // Heartbeats go on: the workers live, the rank hangs.
  for (int i = 0; i < 301; ++i) {
    world.say("worker-0", Heartbeat{i});
    world.say("worker-1", Heartbeat{i});
    world.tick(1s);
  }
  EXPECT_EQ(world.state_of("tiny"), Failed);
  EXPECT_THAT(world.reason_of("tiny"), HasSubstr("rank 1 on worker-1"));
}

TEST(Fencing, report_of_another_attempt_incarnation_worker_or_rank_is_refused_and_counted) {
  World world;
  const std::string name = world.run();
  StepReport report = world.step_report(name, 0, 0);
  report.attempt.attempt = 2;
  world.say("worker-0", report);
  EXPECT_EQ(world.refused(Refusal::Stale), 1);
  report = world.step_report(name, 0, 0);
  report.attempt.incarnation = 99;
  world.say("worker-0", report);
  EXPECT_EQ(world.refused(Refusal::Stale), 2);
  world.say("worker-1", world.step_report(name, 0, 0));  // of a rank that another worker runs
  EXPECT_EQ(world.refused(Refusal::Stale), 3);
  report = world.step_report(name, 0, 0);
  report.rank = RankIndex(17);
  world.say("worker-0", report);
  EXPECT_EQ(world.refused(Refusal::Stale), 4);
  report.attempt.job = "another";
  world.say("worker-0", report);
  EXPECT_EQ(world.refused(Refusal::Stale), 5);
  world.report(name, 0, 0);
  world.report(name, 1, 0);
  EXPECT_EQ(world.job(name).status.step, 1);
  EXPECT_EQ(world.refused(Refusal::Stale), 5);
}

TEST(Fencing, stray_executor_is_told_to_stop) {
  World world;
  world.open(registration("worker-0", 5));
  const AttemptKey key{"forgotten", 3, 5};
  const auto aborts = messages<Abort>(world, world.say("worker-0", RankReady{key, RankIndex(1), 1, ""}));
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].attempt, key);
}

}  // namespace
}  // namespace penstock::coordinator
