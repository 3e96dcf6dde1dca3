// The devices of a job that moves of its own accord, when the coordinator restarts, a worker stays away, or another job has
// been there meanwhile.
#include <gmock/gmock.h>

#include "coordinator/core/testing/rebalanced_job.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

const JobShape kYoung = {.name = "young", .pipeline = 1, .steps = 1000};

// A coordinator that finds `name` moving, and another job that waits for a device.
World restarted_while_moving(std::string& name) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  name = world.run(kUneven);
  EXPECT_EQ(world.submit(kYoung), "young");
  run_steps(world, name, 0, 10);
  EXPECT_EQ(world.state_of(name), Recovering) << world.reason_of(name);
  World next = world_of_quick_questions();
  next.archive = world.archive;
  next.newest_checkpoint = 10;
  next.tell(Restore{world.archive.jobs()});
  return next;
}

TEST(KeptDevices, are_had_again_from_a_coordinator_that_restarts) {
  std::string name;
  World world = restarted_while_moving(name);
  world.open(registration("worker-0"));  // its executor still stops, and worker-1 is not there yet
  world.stopped(name, 0);
  world.tick();
  EXPECT_EQ(world.reason_of("young"),
            "waits for 1 more cpu device: 1 needed, 0 free (worker-0 cpu:0 is kept for tiny)");
  world.open(registration("worker-1"));
  world.stopped(name, 1);
  for (int i = 0; i < 3; ++i) world.tick();
  ASSERT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(world.place_of(name, rank).worker, fmt::format("worker-{}", rank));
}

// By then its executor has ended by itself. The job then waits for its turn, before younger ones.
TEST(KeptDevices, are_kept_for_a_worker_that_stays_away_no_longer_than_its_executor_may_live) {
  std::string name;
  World world = restarted_while_moving(name);
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      for (const char* worker : {"worker-0", "worker-2"}) world.say(worker, Heartbeat{1});
      world.tick(1s);
    }
  };
  for (const char* worker : {"worker-0", "worker-2"}) world.open(registration(worker));
  ASSERT_EQ(world.place_of("young", 0).worker, "worker-2");
  world.stopped(name, 0);
  const std::string youngest = world.submit({.name = "youngest", .pipeline = 1});
  pass(39);
  EXPECT_THAT(world.reason_of(youngest), HasSubstr("worker-0 cpu:0 is kept for tiny"));
  pass(2);
  EXPECT_EQ(world.reason_of(youngest), "waits behind job tiny");
  EXPECT_THAT(world.reason_of(name), HasSubstr("waits for 1 more cpu device"));
  world.open(registration("worker-3"));
  world.tick();
  EXPECT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
}

TEST(KeptDevices, of_a_worker_whose_process_is_new_are_not_kept) {
  std::string name;
  World world = restarted_while_moving(name);
  world.open(registration("worker-0", 2));
  world.tick();
  EXPECT_EQ(world.state_of("young"), Preparing) << world.reason_of("young");
}

// Only what moves of its own accord keeps its devices: who fails waits for its turn.
TEST(KeptDevices, of_a_job_that_failed_before_the_restart_are_not_kept) {
  World world = world_of_quick_questions();
  const std::string name = world.run(kUneven);
  ASSERT_EQ(world.submit(kYoung), "young");
  kill_rank(world, name);
  World next = world_of_quick_questions();
  next.tell(Restore{world.archive.jobs()});
  next.open(registration("worker-0"));
  next.stopped(name, 0);
  next.tick();
  EXPECT_EQ(next.state_of("young"), Preparing) << next.reason_of("young");
}

// While a worker of the one is away the other gets a device of its, and moves itself.
TEST(KeptDevices, of_two_jobs_are_those_of_the_one_that_was_there_last) {
  World world = world_of_quick_questions();
  JobShape other_shape = kUneven;
  other_shape.name = "other";
  other_shape.extra = "checkpoint: {every: 5, directory: /others}\nrebalance: apply\n";
  Planner planner{{move_to(evened()), move_to(evened(other_shape))}};
  planner.serve(world);
  const std::string first = world.run(kUneven);
  run_steps(world, first, 0, 10);
  ASSERT_EQ(world.state_of(first), Recovering);
  world.stopped(first, 1);
  world.tell(SessionClosed{world.sessions.at("worker-0"), "stream closed"});
  world.open(registration("worker-2"));
  const std::string second = world.submit(other_shape);
  world.all_ready(second);
  ASSERT_EQ(world.place_of(second, 0).worker, "worker-1");
  run_steps(world, second, 0, 10);
  ASSERT_EQ(world.state_of(second), Recovering) << world.reason_of(second);
  world.open(registration("worker-0"));
  world.stopped(second, 0);
  world.stopped(second, 1);
  world.stopped(first, 0);
  for (int i = 0; i < 3; ++i) world.tick();
  EXPECT_EQ(world.state_of(second), Preparing) << world.reason_of(second);
  EXPECT_EQ(world.place_of(second, 0).worker, "worker-1");
  EXPECT_THAT(world.reason_of(first), HasSubstr("waits for 1 more cpu device"));
}

}  // namespace
}  // namespace penstock::coordinator
