// What a coordinator that is restarted makes of the jobs in its store.
#include <gmock/gmock.h>

#include "coordinator/core/testing/restarted_job.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

TEST(Restart, keeps_ended_and_waiting_jobs_and_fails_the_ones_that_ran) {
  World before;
  const std::string ran = before.run();
  before.all_report(ran, 0);
  const std::string waits = before.submit({.name = "waits", .pipeline = 3}, "r1");
  const std::string done = before.submit({.name = "done", .pipeline = 3});
  before.tell(Cancel{1, done, "bob"});
  ASSERT_EQ(before.state_of(waits), Placing);

  World after;
  after.archive = before.archive;
  after.tell(Restore{before.archive.jobs()});
  EXPECT_EQ(after.state_of(ran), Failed);
  EXPECT_THAT(after.reason_of(ran),
              HasSubstr("coordinator was restarted while the job was running in step 1"));
  EXPECT_EQ(after.job(ran).losses, std::vector<double>{4.0});
  EXPECT_EQ(after.state_of(done), Cancelled);
  EXPECT_EQ(after.state_of(waits), Placing);
  EXPECT_EQ(after.submit({.name = "waits", .pipeline = 3}, "r1"), waits);
  EXPECT_EQ(after.submit({.name = "waits"}), "waits-2");
}

TEST(Restart, executors_that_outlived_the_coordinator_are_stopped_before_their_device_is_used) {
  World before;
  const std::string name = before.run();

  World after;
  after.archive = before.archive;
  after.tell(Restore{before.archive.jobs()});
  // worker-0 is the same process, worker-1 was restarted: its executor died with it.
  const auto session = ++after.last_session;
  after.sessions["worker-0"] = session;
  const auto commands = after.tell(SessionOpened{session, registration("worker-0", 1)});
  const auto aborts = messages<Abort>(after, commands, "worker-0");
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].attempt, (AttemptKey{name, 1, 1}));
  after.open(registration("worker-1", 2));
  EXPECT_EQ(take_census(after.state).devices_free, 1);
  EXPECT_EQ(after.archive.jobs()[0].placed.size(), 2u);
  after.say("worker-0", ExecutorStopped{aborts[0].attempt, aborts[0].rank});
  EXPECT_EQ(take_census(after.state).devices_free, 2);
  EXPECT_TRUE(after.archive.jobs()[0].placed.empty());
}

TEST(Restart, of_two_executors_remembered_on_a_device_only_the_newer_can_be_alive) {
  // An attempt is forgotten when its last executor is gone; until then a later one may hold a device of it.
  World before;
  const std::string first = before.run();
  before.tell(Cancel{1, first, "bob"});
  before.stopped(first, 0);  // worker-1 still stops its rank
  const std::string second = before.submit({.name = "solo", .pipeline = 1});
  before.tick();
  ASSERT_EQ(before.place_of(second, 0).worker, "worker-0");

  World after;
  after.tell(Restore{before.archive.jobs()});
  after.sessions["worker-0"] = ++after.last_session;
  const auto commands = after.tell(SessionOpened{after.last_session, registration("worker-0", 1)});
  const auto aborts = messages<Abort>(after, commands, "worker-0");
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].attempt.job, second);
}

TEST(Recovery, coordinator_that_is_restarted_goes_on_and_counts_nothing) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.run_steps(name, 0, 3);
  world.keep(name, 2);
  World next(with_state());
  next.newest_checkpoint = 2;
  next.archive = world.archive;
  next.tell(Restore{world.archive.jobs()});
  EXPECT_EQ(next.state_of(name), Recovering);
  EXPECT_THAT(next.reason_of(name), HasSubstr("the coordinator was restarted"));
  EXPECT_EQ(next.job(name).status.restarts, 0);
  EXPECT_EQ(next.job(name).status.step, 3);
  // The same daemons come back; what they still run is stopped first.
  for (const char* worker : {"worker-0", "worker-1"}) next.open(registration(worker));
  EXPECT_EQ(next.state_of(name), Recovering);
  next.all_stopped(name);
  next.tick();
  next.tick();
  ASSERT_EQ(next.state_of(name), Preparing);
  next.all_ready(name);
  next.run_steps(name, 2, 9);
  EXPECT_EQ(next.job(name).losses.size(), 9u);
  EXPECT_EQ(next.archive.jobs()[0].losses.size(), 9u);
}

// What is said of a step is written before its loss is.
TEST(Recovery, step_whose_loss_is_not_on_record_is_done_and_recorded_again) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.run_steps(name, 0, 1);
  std::vector<StoredJob> stored = world.archive.jobs();
  ASSERT_EQ(stored[0].status.step, 1);
  stored[0].losses.clear();
  World next(with_state());
  next.tell(Restore{stored});
  EXPECT_EQ(next.job(name).status.step, 0);
}

TEST(RestartFrom, coordinator_that_is_restarted_knows_where_the_losses_begin) {
  World world(with_state());
  const std::string name = world.run(kGoesOn);
  world.run_steps(name, 4, 7);
  World next(with_state());
  next.archive = world.archive;
  next.tell(Restore{world.archive.jobs()});
  EXPECT_EQ(next.job(name).status.step, 7);
  EXPECT_EQ(view_job(next.state, name, true, 0)->losses.size(), 3u);
  EXPECT_EQ(view_job(next.state, name, true, 0)->first_step, 4);
}

}  // namespace
}  // namespace penstock::coordinator
