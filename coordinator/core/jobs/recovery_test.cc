// Jobs that lose an attempt: what they go on from, what is kept, and when they give up.
#include <gmock/gmock.h>

#include "coordinator/core/testing/restarted_job.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

TEST(Recovery, lost_rank_starts_a_new_attempt_from_the_newest_checkpoint) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.run_steps(name, 0, 5);
  world.keep(name, 4);
  const auto lost = world.kill_rank(name, 1, 5);
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("attempt 1: rank 1 on worker-1 failed in step 5"));
  EXPECT_EQ(messages<Abort>(world, lost).size(), 1u);  // the other one
  world.tick();
  EXPECT_EQ(world.state_of(name), Recovering);  // its executor is still there
  world.all_stopped(name);
  world.sent.clear();
  world.tick();
  world.tick();
  EXPECT_EQ(world.state_of(name), Preparing);
  EXPECT_EQ(world.job(name).status.attempt, 2);
  const auto assignments = messages<Assignment>(world, world.sent);
  ASSERT_EQ(assignments.size(), 2u);
  EXPECT_EQ(assignments[0].first_step, 4);
  EXPECT_EQ(assignments[0].load_from, "/state/jobs/tiny/checkpoints/step-000000004");
  EXPECT_EQ(assignments[0].attempt.attempt, 2);
  // Step 4 is done again, and what was reported stays.
  world.all_ready(name);
  EXPECT_EQ(world.job(name).status.step, 5);
  world.run_steps(name, 4, 9);
  EXPECT_EQ(world.job(name).status.step, 9);
  std::vector<double> expected;
  for (int step = 0; step < 9; ++step) expected.push_back(4.0 - 0.25 * step);
  EXPECT_EQ(world.job(name).losses, expected);
  EXPECT_EQ(world.archive.jobs()[0].losses, expected);
  EXPECT_EQ(view_job(world.state, name, false, 0)->restarts, 1);
}

TEST(Recovery, loss_that_comes_out_differently_fails_the_job_with_both) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.run_steps(name, 0, 3);
  world.keep(name, 2);
  lose_attempt(world, name);
  world.tick();
  world.tick();
  world.all_ready(name);
  StepReport other = world.step_report(name, 1, 2);
  other.loss = 3.75;
  world.say(world.place_of(name, 1).worker, other);
  world.report(name, 0, 2);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("step 2 was done again from the checkpoint of step 2 and must give the "
                        "same loss: expected 3.5, found 3.75"));
}

TEST(Recovery, attempts_that_bring_no_checkpoint_end_the_job_as_no_progress) {
  World world(with_state());
  const std::string name = world.run(kKept);
  lose_attempt(world, name);
  world.tick();
  world.tick();
  ASSERT_EQ(world.state_of(name), Preparing);
  EXPECT_EQ(messages<Assignment>(world, world.sent).back().first_step, 0);
  world.all_ready(name);
  lose_attempt(world, name);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(view_job(world.state, name, false, 0)->exit_code, static_cast<int>(ExitCode::NoProgress));
  EXPECT_THAT(world.reason_of(name), HasSubstr("restart.no_progress_limit"));
}

TEST(Recovery, checkpoint_starts_the_count_anew_until_the_restarts_are_used_up) {
  World world(with_state());
  JobShape shape = kKept;
  shape.steps = 100;
  const std::string name = world.run(shape);
  int64_t step = 0;
  for (int attempt = 1; attempt <= 4; ++attempt) {
    ASSERT_EQ(world.state_of(name), Running) << attempt;
    world.run_steps(name, step, step + 2);
    step += 2;
    world.keep(name, step);
    lose_attempt(world, name);
    world.tick();
    world.tick();
    if (attempt < 4) world.all_ready(name);
  }
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(view_job(world.state, name, false, 0)->exit_code, static_cast<int>(ExitCode::Failed));
  EXPECT_THAT(world.reason_of(name), HasSubstr("restarted 3 times already"));
}

TEST(Recovery, traces_of_two_attempts_are_never_joined) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.trace(name, 0, 0);
  lose_attempt(world, name);
  world.tick();
  world.tick();
  world.all_ready(name);
  world.trace(name, 1, 0);
  EXPECT_FALSE(view_trace(world.state, name, {}).ok());
  world.trace(name, 0, 0);
  EXPECT_TRUE(view_trace(world.state, name, {}).ok());
}

TEST(Recovery, time_that_the_planner_takes_is_not_the_ranks) {
  World world(with_state());
  world.plans_at_once = false;
  world.open(registration("worker-0", 1, 2));
  const std::string name = world.submit(kKept);
  ASSERT_EQ(world.state_of(name), Preparing);
  const auto pass = [&](Duration time) {
    for (Duration passed{}; passed < time; passed += 1s) {
      world.say("worker-0", Heartbeat{1});
      world.tick(1s);
    }
  };
  pass(2 * world.state.options.preparing_limit);  // it reads a large checkpoint
  ASSERT_EQ(world.state_of(name), Preparing);
  world.tell(AttemptPlanned{.job = name,
                            .order = world.job(name).attempt->order,
                            .status = {},
                            .plan = *plan_attempt(*job_spec(kKept))});
  pass(world.state.options.preparing_limit - 2s);
  ASSERT_EQ(world.state_of(name), Preparing);
  pass(4s);
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("not ready after 300 s"));
}

TEST(Recovery, disk_that_is_full_for_a_while_costs_an_attempt_and_not_the_job) {
  World world(with_state());
  world.plans_at_once = false;
  world.open(registration("worker-0", 1, 2));
  const std::string name = world.submit(kKept);
  const auto order = [&] { return world.job(name).attempt->order; };
  world.tell(AttemptPlanned{name, order(), unavailable("the marker cannot be made"), nullptr});
  ASSERT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("the marker cannot be made"));
  world.plans_at_once = true;
  world.tick();
  world.tick();
  world.all_ready(name);
  world.run_steps(name, 0, 9);
  for (const int64_t step : {2, 4, 6, 8}) world.keep(name, step);
  world.all_finish(name);
  const Attempt attempt = *world.job(name).attempt;
  world.tell(WeightsCommitted{name, attempt.order, attempt.weights, resource_exhausted("no space is left")});
  EXPECT_EQ(world.state_of(name), Recovering);
  EXPECT_THAT(world.reason_of(name), HasSubstr("the final weights cannot be kept: no space is left"));
  world.all_stopped(name);
  world.tick();
  world.tick();
  world.tell(AttemptPlanned{name, order(), already_exists("somebody else's"), nullptr});
  EXPECT_EQ(world.state_of(name), Failed);
}

TEST(Recovery, job_can_be_cancelled_while_it_recovers) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.kill_rank(name, 1, 0);
  ASSERT_EQ(world.state_of(name), Recovering);
  world.tell(Cancel{77, name, "bob"});
  EXPECT_EQ(world.state_of(name), Cancelled);
  world.all_stopped(name);
  world.tick();
  world.tick();
  EXPECT_EQ(world.state_of(name), Cancelled);
}

TEST(Recovery, checkpoint_that_is_refused_is_said_with_the_reason) {
  World world(with_state());
  world.plans_at_once = false;
  world.open(registration("worker-0", 1, 2));
  const std::string name = world.submit(kKept);
  world.tell(AttemptPlanned{.job = name,
                            .order = world.job(name).attempt->order,
                            .status = {},
                            .plan = *plan_attempt(*job_spec(kKept)),
                            .load_from = "/state/jobs/tiny/checkpoints/step-000000002",
                            .first_step = 2,
                            .refused = {"step-000000004/x: damaged"}});
  EXPECT_TRUE(world.has_told(name, "a checkpoint is not used: step-000000004/x: damaged"));
  EXPECT_TRUE(world.has_told(name, "goes on from the checkpoint of step 2"));
}

TEST(Recovery, arithmetic_that_changed_since_the_checkpoint_is_said_and_the_same_is_not) {
  World world(with_state());
  const std::string name = world.run(kKept);
  EXPECT_FALSE(world.has_told(name, "the arithmetic has changed"));  // it began with none
  world.run_steps(name, 0, 2);
  world.keep(name, 2);
  for (const char* made_with : {"test", "another CPU"}) {
    world.checkpoint_fingerprint = made_with;
    lose_attempt(world, name);
    world.tick();
    world.tick();
    ASSERT_EQ(world.state_of(name), Preparing);
    world.all_ready(name);
    ASSERT_EQ(world.state_of(name), Running);
    // "test" is what the ranks say.
    EXPECT_EQ(world.has_told(name, "the arithmetic has changed"), world.checkpoint_fingerprint != "test");
  }
  EXPECT_TRUE(world.has_told(
      name,
      "the arithmetic has changed: the checkpoint of step 2 was made with \"another CPU\", its ranks "
      "compute with \"test\""));
}

TEST(Recovery, attempt_that_began_with_a_checkpoint_and_brought_none_is_barren) {
  World world(with_state());
  const std::string name = world.run(kKept);
  world.run_steps(name, 0, 2);
  world.keep(name, 2);
  for (const int64_t barren : {0, 1}) {
    lose_attempt(world, name);
    EXPECT_EQ(world.job(name).status.barren_attempts, barren);
    world.tick();
    world.tick();
    ASSERT_EQ(world.state_of(name), Preparing);
    world.all_ready(name);
  }
}

}  // namespace
}  // namespace penstock::coordinator
