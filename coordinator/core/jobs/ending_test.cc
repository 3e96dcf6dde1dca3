// How jobs end: with success, with a failure that names its cause, or cancelled.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

TEST(Success, needs_all_steps_and_all_ranks_and_is_seen_when_durable) {
  World world;
  const std::string name = world.run();
  world.run_steps(name, 0, 3);
  world.finish(name, 0);
  EXPECT_EQ(world.state_of(name), Running);
  world.durable_at_once = false;
  world.finish(name, 1);
  EXPECT_EQ(world.state_of(name), Running);  // a crash now must not take back what somebody saw
  EXPECT_EQ(view_job(world.state, name, false, 0)->weights_digest, "");
  world.make_durable();
  EXPECT_EQ(world.state_of(name), Succeeded);
  const auto view = view_job(world.state, name, true, world.now.unix_ms + 99'000);
  EXPECT_EQ(view->exit_code, 0);
  EXPECT_EQ(view->weights_digest.size(), 32u);
  EXPECT_LT(view->seconds, 90);
  EXPECT_EQ(world.archive.find(name)->losses.size(), 3u);
  EXPECT_EQ(world.archive.jobs()[0].status, world.job(name).status);
}

TEST(Success, needs_replicas_that_ended_with_the_same_weights) {
  // DualPipe and chimera hold every stage on two ranks. Two ranks that part have trained two models.
  for (const bool they_part : {false, true}) {
    World world;
    JobShape shape;
    shape.schedule = "chimera";
    const std::string name = world.run(shape);
    for (int64_t step = 0; step < 3; ++step) {
      for (const int rank : {0, 1}) {
        StepReport report = world.step_report(name, rank, step);
        report.loss = 1.5 + rank;  // each its part
        world.say(world.place_of(name, rank).worker, report);
      }
    }
    EXPECT_EQ(world.job(name).status.loss, 4.0);
    for (const int rank : {0, 1}) {
      RankFinished finished{world.key(name, rank), RankIndex(rank), {}};
      for (const plan::ParameterSpec& parameter : plan::model_parameters(world.job(name).spec->model)) {
        finished.digests.push_back({parameter.index, {static_cast<uint8_t>(parameter.index)}});
      }
      if (they_part && rank == 1) finished.digests.back().digest[7] = 1;
      world.say(world.place_of(name, rank).worker, finished);
    }
    if (they_part) {
      EXPECT_EQ(world.state_of(name), Failed);
      EXPECT_THAT(world.reason_of(name),
                  HasSubstr("lm_head.weight: ranks 0 and 1 ended with different bits"));
    } else {
      EXPECT_EQ(world.state_of(name), Succeeded);
    }
  }
}

TEST(Success, frees_a_device_when_its_executor_has_stopped) {
  World world;
  const std::string name = world.run();
  world.run_steps(name, 0, 3);
  world.finish(name, 0);
  const auto commands = world.finish(name, 1);
  EXPECT_TRUE(messages<Abort>(world, commands).empty());  // finished executors leave by themselves
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.stopped(name, 0);
  EXPECT_EQ(take_census(world.state).devices_free, 1);
  EXPECT_EQ(world.archive.jobs()[0].placed.size(), 2u);
  world.stopped(name, 1);
  EXPECT_EQ(take_census(world.state).devices_free, 2);
  EXPECT_TRUE(world.archive.jobs()[0].placed.empty());
}

TEST(Success, finished_executor_that_does_not_leave_is_told_to) {
  World world;
  const std::string name = world.run();
  world.run_steps(name, 0, 3);
  world.all_finish(name);
  world.say("worker-0", Heartbeat{});
  EXPECT_EQ(messages<Abort>(world, world.tick(2100ms), "worker-0").size(), 1u);
}

TEST(Success, worker_that_dies_after_its_result_does_not_matter) {
  World world;
  const std::string name = world.run();
  world.run_steps(name, 0, 3);
  world.finish(name, 0);
  world.tell(SessionClosed{world.sessions["worker-0"], "stream closed"});
  EXPECT_EQ(world.state_of(name), Running);
  world.finish(name, 1);
  EXPECT_EQ(world.state_of(name), Succeeded);
}

TEST(Success, rank_that_finishes_without_its_reports_fails_the_job) {
  World world;
  const std::string name = world.run();
  world.all_report(name, 0);
  world.all_finish(name);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("1 of 3 steps"));
}

TEST(Success, missing_parameter_fails_the_job_by_name) {
  World world;
  const std::string name = world.run();
  world.run_steps(name, 0, 3);
  world.finish(name, 0);
  world.say("worker-1", RankFinished{world.key(name, 1), RankIndex(1), {}});
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("no rank sent it"));
}

TEST(Failure, killed_executor_fails_the_job_at_once_with_worker_rank_step_and_signal) {
  World world;
  const std::string name = world.run({.pipeline = 3});
  world.all_report(name, 0);
  const auto commands =
      world.say("worker-1", RankFailed{world.key(name, 1), RankIndex(1), 1, "executor ended", -1, 9});
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(world.reason_of(name),
            "rank 1 on worker-1 failed in step 1: executor ended (killed by signal 9, SIGKILL)");
  EXPECT_EQ(world.job(name).status.exit_code, 1);
  // Peers are told at once; the dead one's device is free when its daemon says that the executor has stopped.
  EXPECT_EQ(messages<Abort>(world, commands, "worker-0").size(), 1u);
  EXPECT_EQ(messages<Abort>(world, commands, "worker-1").size(), 0u);
  EXPECT_EQ(messages<Abort>(world, commands, "worker-2").size(), 1u);
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.stopped(name, 1);
  EXPECT_EQ(take_census(world.state).devices_free, 1);
  world.stopped(name, 0);
  world.stopped(name, 2);
  EXPECT_EQ(take_census(world.state).devices_free, 3);
}

TEST(Failure, device_is_not_free_while_the_executor_that_failed_lives) {
  // An executor reports its failure before it ends; the next job would find the device busy.
  World world;
  const std::string name = world.run();
  world.say("worker-0", RankFailed{world.key(name, 0), RankIndex(0), 6, "step 6, stage 0: no window", 1, 0});
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.tick(400ms);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(world.reason_of(name), "rank 0 on worker-0 failed: step 6, stage 0: no window (exit code 1)");
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.stopped(name, 0);
  EXPECT_EQ(take_census(world.state).devices_free, 1);
}

TEST(Failure, peers_of_a_dead_rank_do_not_take_the_blame) {
  // A killed executor's peers lose their connection to it and may be heard first.
  World world;
  const std::string name = world.run({.pipeline = 3});
  world.say("worker-0", RankFailed{world.key(name, 0), RankIndex(0), 0, "connection closed by peer", 1, 0});
  EXPECT_EQ(world.state_of(name), Running);
  world.say("worker-1", RankFailed{world.key(name, 1), RankIndex(1), 0, "executor ended", -1, 9});
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("rank 1 on worker-1"));
}

TEST(Failure, own_error_of_a_rank_fails_the_job_after_the_settling_time) {
  World world;
  const std::string name = world.run();
  world.say("worker-0",
            RankFailed{world.key(name, 0), RankIndex(0), 0, "/data/text.txt: no such file", 0, 0});
  world.say("worker-1", RankFailed{world.key(name, 1), RankIndex(1), 0, "connection closed by peer", 0, 0});
  const auto commands = world.tick(400ms);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("rank 0 on worker-0 failed in step 0: /data/text.txt"));
  EXPECT_EQ(messages<Abort>(world, commands).size(), 2u);
}

TEST(Failure, executor_that_stops_without_a_word_fails_the_job) {
  World world;
  const std::string name = world.run();
  world.stopped(name, 0);
  EXPECT_EQ(world.state_of(name), Running);
  world.tick(400ms);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("rank 0 on worker-0 stopped without a result"));
}

TEST(Cancel, works_in_every_live_state_and_is_answered_when_durable) {
  for (const JobState from : {Queued, Placing, Preparing, Running}) {
    World world;
    std::string name;
    if (from == Queued) {
      world.open_workers(2);
      world.tell(SessionSaid{world.sessions["worker-1"], Heartbeat{}});
      world.submit({.name = "first"});
      world.submit({.name = "second"});
      name = world.submit({.name = "third"});
      world.tick();
    } else if (from == Placing) {
      name = world.submit({});
      world.tick();
    } else if (from == Preparing) {
      world.open_workers(2);
      name = world.submit({});
    } else {
      name = world.run();
    }
    ASSERT_EQ(world.state_of(name), from);
    world.durable_at_once = false;
    const auto commands = world.tell(Cancel{77, name, "bob"});
    EXPECT_TRUE(of<AnswerControl>(commands).empty());
    EXPECT_EQ(messages<Abort>(world, commands).size(), from == Preparing || from == Running ? 2u : 0u);
    const auto answers = of<AnswerControl>(world.make_durable());
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(*answers[0].state, Cancelled);
    EXPECT_EQ(world.state_of(name), Cancelled);
    EXPECT_EQ(world.reason_of(name), "cancelled by bob");
    EXPECT_EQ(world.job(name).status.exit_code, 3);
  }
}

TEST(Cancel, ended_job_keeps_its_state_and_an_unknown_one_is_not_found) {
  World world;
  world.submit({});
  world.tell(Cancel{1, "tiny", "bob"});
  const auto again = of<AnswerControl>(world.tell(Cancel{2, "tiny", "carl"}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(*again[0].state, Cancelled);
  EXPECT_EQ(world.job("tiny").status.by, "bob");
  const auto unknown = of<AnswerControl>(world.tell(Cancel{3, "tinny", "carl"}));
  EXPECT_EQ(unknown[0].state.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(message(unknown[0].state.status()), HasSubstr("did you mean tiny?"));
}

}  // namespace
}  // namespace penstock::coordinator
