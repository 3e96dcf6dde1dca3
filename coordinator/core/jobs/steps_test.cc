// Steps of running jobs: what their ranks report, and jobs that stand still.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum JobState;

TEST(Steps, commit_needs_every_rank_and_shows_the_loss_of_the_loss_stage_once) {
  World world;
  const std::string name = world.run();
  world.report(name, 1, 0);
  EXPECT_EQ(world.job(name).status.step, 0);
  world.report(name, 0, 0);
  const auto view = view_job(world.state, name, true, world.now.unix_ms);
  EXPECT_EQ(view->step, 1);
  EXPECT_EQ(view->loss, 4.0);
  EXPECT_THAT(view->losses, ::testing::ElementsAre(4.0));
  EXPECT_EQ(view->step_seconds, 0.5);
  EXPECT_DOUBLE_EQ(*view->tokens_per_second, 4 * 8 / 0.5);
  ASSERT_EQ(view->stages.size(), 2u);
  EXPECT_EQ(view->stages[0].worker, "worker-0");
  EXPECT_THAT(view->stages[0].layers, ::testing::Contains("embedding"));
  EXPECT_DOUBLE_EQ(*view->stages[1].forward_ms, 10);
  EXPECT_DOUBLE_EQ(*view->stages[1].backward_ms, 20);
  EXPECT_DOUBLE_EQ(*view->stages[1].wait_ms, 125);
  EXPECT_DOUBLE_EQ(*view->stages[1].busy_fraction, 0.75);
  EXPECT_EQ(view->stages[1].memory_peak_bytes, 150);
  EXPECT_GT(*view->stages[1].memory_predicted_bytes, 0);
}

TEST(Steps, loss_of_a_rank_without_the_loss_stage_is_not_shown) {
  World world;
  const std::string name = world.run();
  StepReport report = world.step_report(name, 0, 0);
  report.loss = 99.0;
  world.say("worker-0", report);
  world.report(name, 1, 0);
  EXPECT_EQ(world.job(name).status.loss, 4.0);
}

TEST(Steps, missing_loss_fails_the_job) {
  World world;
  const std::string name = world.run();
  StepReport report = world.step_report(name, 1, 0);
  report.loss.reset();
  world.say("worker-1", report);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("without a loss"));
}

TEST(Steps, duplicates_and_impossible_steps_are_refused_and_counted) {
  World world;
  const std::string name = world.run({.steps = 100});
  world.report(name, 0, 0);
  world.report(name, 0, 0);
  EXPECT_EQ(world.refused(Refusal::Duplicate), 1);
  world.report(name, 0, 100);
  world.report(name, 0, -1);
  EXPECT_EQ(world.refused(Refusal::Malformed), 2);
  EXPECT_EQ(world.state_of(name), Running);
}

TEST(Steps, rank_too_far_ahead_fails_the_job) {
  // What waits for the slowest rank is memory; without a bound a lost report would fill it.
  Options options;
  options.reports_ahead = 0;
  World world(options);
  const std::string name = world.run({.steps = 1000});
  world.report(name, 0, 63);
  EXPECT_EQ(world.state_of(name), Running);
  world.report(name, 0, 64);
  EXPECT_EQ(world.refused(Refusal::OutOfWindow), 1);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("rank 0 on worker-0 reported step 64 while step 0 is not committed"));
}

TEST(Steps, without_a_flush_the_ranks_of_a_pipeline_are_further_apart) {
  // The last of P ranks is up to P microbatches ahead of the first, here 4 of an update of 4.
  Options options;
  options.reports_ahead = 0;
  World world(options);
  const std::string name = world.run(
      {.pipeline = 4, .steps = 1000, .schedule = "pipedream", .train = ", optimizer: {clip_grad_norm: 0}"});
  world.report(name, 3, 64);
  EXPECT_EQ(world.state_of(name), Running);
  world.report(name, 3, 65);
  EXPECT_EQ(world.state_of(name), Failed);
}

TEST(Steps, slow_store_gets_one_progress_save_at_a_time) {
  // Otherwise a stuck disk would make the queue grow with every step.
  World world;
  const std::string name = world.run({.steps = 100});
  world.durable_at_once = false;
  const Ticket before = world.saved;
  world.run_steps(name, 0, 50);
  EXPECT_EQ(world.saved, before + 1);
  world.make_durable();
  world.make_durable();
  EXPECT_EQ(world.archive.jobs()[0].losses.size(), 50u);
  EXPECT_EQ(world.archive.jobs()[0].losses, world.job(name).losses);
}

TEST(Reports, stage_that_the_job_has_not_is_refused) {
  World world;
  const std::string name = world.run();
  const auto said = [&](const StepReport& report) { world.say(world.place_of(name, 0).worker, report); };
  StepReport timed = world.step_report(name, 0, 0);
  timed.stages[0].stage = StageIndex(2);
  said(timed);
  StepReport leased = world.step_report(name, 0, 0);
  leased.payloads = {{StageIndex(2), LayerIndex(0), "inputs", 1, 0, 0, 0}};
  said(leased);
  EXPECT_EQ(world.refused(Refusal::Malformed), 2);
  world.all_report(name, 0);
  EXPECT_EQ(world.job(name).status.step, 1);
}

TEST(Reports, kinds_of_memory_that_change_with_every_report_are_bounded) {
  World world;
  const std::string name = world.run({.steps = 5});
  for (int64_t step = 0; step < 5; ++step) {
    StepReport report = world.step_report(name, 0, step);
    for (int k = 0; k < 30; ++k) report.memory.push_back({fmt::format("kind_{}_{}", step, k), 8});
    world.say(world.place_of(name, 0).worker, report);
    world.report(name, 1, step);
  }
  EXPECT_EQ(world.job(name).status.step, 5);
  std::set<std::string> observed;
  for (const Observed& seen : of<Observed>(world.sent)) {
    const auto* committed = std::get_if<StepCommitted>(&seen.observation);
    if (committed == nullptr) continue;
    for (const MemoryKind& kind : committed->reports[0].memory) observed.insert(kind.kind);
  }
  EXPECT_LE(observed.size(), codec::kMostMemoryKinds);
  EXPECT_TRUE(observed.contains("parameters"));
}

TEST(Traces, are_shown_when_all_ranks_are_in_and_outlive_the_coordinator) {
  World world;
  const std::string name = world.run({.steps = 100});
  EXPECT_THAT(message(view_trace(world.state, name, {}).status()), HasSubstr("no step is traced"));
  EXPECT_EQ(view_trace(world.state, "other", {}).status().code(), StatusCode::kNotFound);
  for (int rank = 0; rank < 2; ++rank) world.report(name, rank, 2);
  world.trace(name, 0, 2);
  EXPECT_FALSE(view_trace(world.state, name, {}).ok());
  world.trace(name, 1, 2);
  for (int rank = 0; rank < 2; ++rank) world.trace(name, rank, 10);
  const StatusOr<TraceView> newest = view_trace(world.state, name, {});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->step, 10);
  EXPECT_THAT(newest->steps, ElementsAre(2, 10));
  EXPECT_EQ(newest->ranks.size(), 2u);
  EXPECT_EQ(newest->spec_yaml, world.job(name).definition.spec_yaml);
  EXPECT_EQ(view_trace(world.state, name, 2)->step, 2);
  EXPECT_EQ(message(view_trace(world.state, name, 3).status()),
            fmt::format("job {}: step 3 is not traced, or not kept; kept are 2, 10", name));

  World after;
  after.tell(Restore{world.archive.jobs()});
  const StatusOr<TraceView> kept = view_trace(after.state, name, 10);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept->ranks[1], *newest->ranks[1]);
}

TEST(Traces, of_another_attempt_or_twice_or_of_no_step_are_refused_and_counted) {
  World world;
  const std::string name = world.run({.steps = 100});
  world.trace(name, 0, 2);
  world.trace(name, 0, 2);
  EXPECT_EQ(world.refused(Refusal::Duplicate), 1);
  world.trace(name, 0, 100);
  EXPECT_EQ(world.refused(Refusal::Malformed), 1);
  StepTrace stale;
  stale.attempt = world.key(name, 0);
  ++stale.attempt.attempt;
  stale.rank = RankIndex(0);
  world.say(world.place_of(name, 0).worker, stale);
  EXPECT_EQ(world.refused(Refusal::Stale), 1);
}

TEST(Traces, bytes_are_bounded_and_dropped_steps_leave_the_store) {
  Options options;
  options.trace_bytes_per_job = 100;
  World world(options);
  const std::string name = world.run({.steps = 100});
  for (const int64_t step : {2, 10, 20, 30}) {
    for (int rank = 0; rank < 2; ++rank) world.trace(name, rank, step);
  }
  EXPECT_LE(world.job(name).traces.bytes(), 100u);
  const auto kept = world.job(name).traces.complete();
  EXPECT_LT(kept.size(), 4u);
  EXPECT_EQ(world.archive.jobs()[0].traces.size(), kept.size());
}

TEST(Stall, running_job_without_progress_says_whom_it_waits_for_and_goes_on) {
  World world;
  const std::string name = world.run({.steps = 100});
  world.all_report(name, 0);
  world.report(name, 0, 1);
  const auto pass = [&](int seconds) {
    for (int s = 0; s < seconds; ++s) {
      for (const char* worker : {"worker-0", "worker-1"}) world.say(worker, Heartbeat{s});
      world.tick(1s);
    }
  };
  pass(29);
  EXPECT_EQ(world.reason_of(name), "all 2 ranks are ready");
  const size_t events = world.job(name).events.size();
  pass(20);
  EXPECT_EQ(world.reason_of(name), "no step for 30 s; rank 1 on worker-1 last reported step 0");
  EXPECT_EQ(world.job(name).events.size(), events + 1);  // once a change
  world.report(name, 1, 1);
  EXPECT_EQ(world.state_of(name), Running);
  EXPECT_EQ(world.reason_of(name), "steps go on after 49 s without one");
  EXPECT_EQ(world.archive.jobs()[0].events.size(), events + 2);
}

TEST(Stall, slow_steps_are_not_taken_for_none) {
  World world;
  const std::string name = world.run({.steps = 100});
  for (int rank = 0; rank < 2; ++rank) {
    StepReport report = world.step_report(name, rank, 0);
    report.wall_seconds = 60;
    world.say(fmt::format("worker-{}", rank), report);
  }
  for (int s = 0; s < 299; ++s) {
    for (const char* worker : {"worker-0", "worker-1"}) world.say(worker, Heartbeat{s});
    world.tick(1s);
  }
  EXPECT_EQ(world.reason_of(name), "all 2 ranks are ready");
  world.tick(1s);
  EXPECT_THAT(world.reason_of(name), HasSubstr("no step for 300 s; rank 0 on worker-0"));
}

}  // namespace
}  // namespace penstock::coordinator
