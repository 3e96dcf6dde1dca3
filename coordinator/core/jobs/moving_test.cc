// Jobs that move of their own accord: what a move may cost them, and what not.
#include <gmock/gmock.h>

#include "coordinator/core/testing/rebalanced_job.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

const JobShape kYoung = {.name = "young", .pipeline = 1, .steps = 1000};

// Its executors leave one after the other.
void leave_slowly(World& world, const std::string& name) {
  for (int rank = 0; rank < 2; ++rank) {
    world.tick();
    world.stopped(name, rank);
  }
  for (int i = 0; i < 3; ++i) world.tick();
}

TEST(Moving, job_gets_its_devices_back_before_a_younger_one_that_waits) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  const std::string young = world.submit(kYoung);
  run_steps(world, name, 0, 10);
  ASSERT_EQ(world.state_of(name), Recovering);
  world.tick();
  world.stopped(name, 0);
  world.tick();
  EXPECT_EQ(
      world.reason_of(young),
      "waits for 1 more cpu device: 1 needed, 0 free (worker-0 cpu:0 is kept for tiny, worker-1 cpu:0 stops "
      "tiny rank 1)");
  world.stopped(name, 1);
  for (int i = 0; i < 3; ++i) world.tick();
  EXPECT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  EXPECT_EQ(world.reason_of(young),
            "waits for 1 more cpu device: 1 needed, 0 free (worker-0 cpu:0 runs tiny rank 0, "
            "worker-1 cpu:0 runs tiny rank 1)");
}

// It would wait for what the move gave away, and the older one for more than that.
TEST(Moving, job_gets_its_devices_back_before_an_older_one_that_needs_more) {
  World world = world_of_quick_questions();
  const std::string old = world.submit({.name = "old", .pipeline = 3, .steps = 1000});
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  world.open(registration("worker-2"));
  ASSERT_THAT(world.reason_of(old), HasSubstr("waits for 2 more"));
  run_steps(world, name, 0, 10);
  ASSERT_EQ(world.state_of(name), Recovering);
  leave_slowly(world, name);
  EXPECT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
}

// Another machine may compute other bits, and steps that are done again must come out the same.
TEST(Moving, job_stays_on_its_machine) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  world.open(registration("big", 1, 4));
  const std::string name = world.submit(kUneven);
  world.all_ready(name);
  world.open(registration("small", 1, 2));
  run_steps(world, name, 0, 10);
  ASSERT_EQ(world.state_of(name), Recovering);
  leave_slowly(world, name);
  ASSERT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  EXPECT_EQ(world.reason_of(name), "0 of 2 ranks are ready");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(world.place_of(name, rank).worker, "big");
}

TEST(Moving, job_whose_worker_is_drained_meanwhile_is_placed_as_any_other) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  run_steps(world, name, 0, 10);
  world.tell(Drain{91, "worker-0", "bob"});
  leave_slowly(world, name);
  EXPECT_THAT(world.reason_of(name), HasSubstr("waits for 1 more"));
  world.open(registration("worker-2"));
  EXPECT_EQ(world.state_of(name), Preparing) << world.reason_of(name);
  EXPECT_EQ(world.place_of(name, 1).worker, "worker-2");
}

TEST(Moving, job_that_a_person_pauses_meanwhile_keeps_no_devices) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  planner.serve(world);
  const std::string name = world.run(kUneven);
  const std::string young = world.submit(kYoung);
  run_steps(world, name, 0, 10);
  world.tell(Pause{91, name, "bob"});
  leave_slowly(world, name);
  EXPECT_EQ(world.state_of(young), Preparing) << world.reason_of(young);
}

TEST(Moving, job_whose_restarts_are_spent_survives_a_split_that_cannot_run) {
  World world = world_of_quick_questions();
  JobShape shape = kUneven;
  shape.extra += "restart: {max: 1}\n";
  Planner planner{{{}, move_to(evened(shape))}};
  planner.serve(world);
  const std::string name = world.run(shape);
  run_steps(world, name, 0, 7);
  kill_rank(world, name);
  restart(world, name);
  world.all_ready(name);
  run_steps(world, name, 5, 15);
  ASSERT_EQ(world.state_of(name), Recovering) << world.reason_of(name);
  restart(world, name);
  kill_rank(world, name);
  EXPECT_EQ(world.state_of(name), Recovering) << world.reason_of(name);
  EXPECT_EQ(world.job(name).status.restarts, 1);  // the first rank's
  EXPECT_EQ(world.job(name).status.barren_attempts, 0);
  EXPECT_EQ(stored(world, name).spec_yaml, job_yaml(shape));
  restart(world, name);
  kill_rank(world, name);
  EXPECT_EQ(world.job(name).ending->status.state, Failed);  // once per move
}

TEST(Moving, split_that_did_steps_is_not_taken_back_when_a_later_attempt_does_none) {
  World world = world_of_quick_questions();
  Planner planner{{move_to(evened())}};
  const std::string name = moved_job(world, planner);
  world.all_ready(name);
  run_steps(world, name, 10, 12);
  kill_rank(world, name);
  restart(world, name);
  kill_rank(world, name);
  EXPECT_EQ(world.job(name).status.restarts, 2);
  EXPECT_EQ(stored(world, name).moves, SplitMoves{.file_before = job_yaml(kUneven)});
}

TEST(Moving, split_is_not_to_blame_for_a_worker_that_leaves) {
  for (const bool drains : {false, true}) {
    World world = world_of_quick_questions();
    Planner planner{{move_to(evened())}};
    const std::string name = moved_job(world, planner);
    if (drains)
      world.say("worker-0", coordinator::Draining{"SIGTERM"});
    else
      world.tell(SessionClosed{world.sessions.at("worker-0"), "stream closed"});
    EXPECT_EQ(world.state_of(name), Recovering);
    EXPECT_EQ(world.job(name).status.restarts, 1);
    EXPECT_EQ(stored(world, name).moves, SplitMoves{.file_before = job_yaml(kUneven)});
  }
}

}  // namespace
}  // namespace penstock::coordinator
