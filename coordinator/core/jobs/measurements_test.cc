#include "coordinator/core/jobs/measurements.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "coordinator/core/core.h"
#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::World;

StepReport report(int rank, double forward, double wall = 1) {
  StepReport report;
  report.rank = RankIndex(rank);
  report.wall_seconds = wall;
  report.wait_seconds = 0.25;
  report.optimizer_seconds = 0.125;
  StageTimes& stage = report.stages.emplace_back();
  stage.stage = StageIndex(rank);
  stage.forward_seconds = forward;
  stage.backward_seconds = 2 * forward;
  return report;
}

const MeasuredSeries* find(const Measurements& measurements, int rank, MeasuredKind kind) {
  for (const MeasuredSeries& series : measurements.attempts().back().series) {
    if (series.rank == RankIndex(rank) && series.kind == kind) return &series;
  }
  return nullptr;
}

TEST(Measurements, warm_up_is_left_out) {
  Measurements measurements;
  measurements.begin(1, "1f1b", {"embedding 0", "1 head"}, 2);
  measurements.add({report(0, 9), report(1, 9)});
  measurements.add({report(0, 9), report(1, 9)});
  EXPECT_FALSE(measurements.has_steps());
  measurements.add({report(0, 0.5), report(1, 0.75)});
  ASSERT_TRUE(measurements.has_steps());
  EXPECT_EQ(measurements.attempts().back().steps, 1);
  EXPECT_THAT(find(measurements, 0, MeasuredKind::Forward)->seconds, ElementsAre(0.5f));
  EXPECT_THAT(find(measurements, 1, MeasuredKind::Backward)->seconds, ElementsAre(1.5f));
  EXPECT_THAT(find(measurements, 1, MeasuredKind::Wait)->seconds, ElementsAre(0.25f));
  EXPECT_THAT(find(measurements, 1, MeasuredKind::Optimizer)->seconds, ElementsAre(0.125f));
  EXPECT_EQ(find(measurements, 0, MeasuredKind::InputGradient), nullptr);
}

TEST(Measurements, newest_samples_are_kept_in_order_and_all_are_counted) {
  Measurements measurements;
  measurements.begin(1, "1f1b", {"embedding 0 head"}, 1);
  for (int step = 0; step < 1000; ++step) measurements.add({report(0, step)});
  const MeasuredSeries* forward = find(measurements, 0, MeasuredKind::Forward);
  EXPECT_EQ(forward->count, 998);
  EXPECT_GE(forward->seconds.size(), 64u);
  EXPECT_LT(forward->seconds.size(), 128u);
  EXPECT_EQ(forward->seconds.back(), 999.f);
  EXPECT_TRUE(std::is_sorted(forward->seconds.begin(), forward->seconds.end()));
}

// A thousand ranks must not take a gigabyte.
TEST(Measurements, window_shrinks_where_there_are_many_series) {
  constexpr int kRanks = 8'192;
  Measurements measurements;
  measurements.begin(1, "1f1b", std::vector<std::string>(kRanks, "0"), kRanks);
  std::vector<StepReport> reports;
  for (int rank = 0; rank < kRanks; ++rank) reports.push_back(report(rank, 1));
  for (int step = 0; step < 40; ++step) measurements.add(reports);
  EXPECT_THAT(measurements.attempts().back().series, SizeIs(5 * kRanks));
  EXPECT_LT(measurements.bytes(), size_t{16} << 20);
}

TEST(Measurements, newest_attempts_are_kept_and_one_without_a_step_is_forgotten) {
  Measurements measurements;
  for (int attempt = 1; attempt <= 6; ++attempt) {
    measurements.begin(attempt, "1f1b", {"embedding 0 head"}, 1);
    if (attempt == 3) continue;  // its workers died before the first step
    for (int step = 0; step < 3; ++step) measurements.add({report(0, attempt)});
  }
  std::vector<int64_t> attempts;
  for (const AttemptMeasurements& each : measurements.attempts()) attempts.push_back(each.attempt);
  EXPECT_THAT(attempts, ElementsAre(2, 4, 5, 6));
}

TEST(Measurements, halves_of_a_backward_are_series_of_their_own) {
  Measurements measurements;
  measurements.begin(1, "zb-h1", {"embedding 0 head"}, 1);
  StepReport split = report(0, 1);
  split.stages[0].backward_seconds = 0;
  split.stages[0].input_gradient_seconds = 3;
  split.stages[0].weight_gradient_seconds = 4;
  for (int step = 0; step < 3; ++step) measurements.add({split});
  EXPECT_EQ(find(measurements, 0, MeasuredKind::Backward), nullptr);
  EXPECT_THAT(find(measurements, 0, MeasuredKind::InputGradient)->seconds, ElementsAre(3.f));
  EXPECT_THAT(find(measurements, 0, MeasuredKind::WeightGradient)->seconds, ElementsAre(4.f));
}

TEST(Measurements, traced_works_give_the_cpu_time_of_an_action) {
  Measurements measurements;
  measurements.begin(1, "1f1b", {"embedding 0 head"}, 1);
  StepTrace trace;
  trace.rank = RankIndex(0);
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    trace.works.push_back({.work = {StageIndex(0), plan::ActionKind::Forward, MicrobatchIndex(microbatch)},
                           .cpu_ns = int64_t{1'000'000'000} * (1 + 2 * microbatch)});
  }
  measurements.add(trace);
  EXPECT_THAT(find(measurements, 0, MeasuredKind::Forward)->cpu_seconds, ElementsAre(2.f));
  EXPECT_THAT(find(measurements, 0, MeasuredKind::Forward)->seconds, IsEmpty());
}

TEST(Measurements, traced_layers_are_series_by_stage_and_type) {
  Measurements measurements;
  measurements.begin(1, "1f1b", {"embedding 0 1", "2 head"}, 2);
  StepTrace trace;
  trace.rank = RankIndex(1);
  trace.layers = {{StageIndex(1), plan::LayerType::Block, 2'000'000'000, 4'000'000'000},
                  {StageIndex(1), plan::LayerType::Head, 3'000'000'000, 0}};
  measurements.add(trace);
  trace.layers[0].forward_ns = 1'000'000'000;
  measurements.add(trace);
  const auto of = [&](MeasuredKind kind, plan::LayerType layer) {
    for (const MeasuredSeries& series : measurements.attempts().back().series) {
      if (series.kind == kind && series.layer == layer && series.stage == StageIndex(1))
        return series.seconds;
    }
    return std::vector<float>{};
  };
  EXPECT_THAT(of(MeasuredKind::LayerForward, plan::LayerType::Block), ElementsAre(2.f, 1.f));
  EXPECT_THAT(of(MeasuredKind::LayerBackward, plan::LayerType::Block), ElementsAre(4.f, 4.f));
  EXPECT_THAT(of(MeasuredKind::LayerForward, plan::LayerType::Head), ElementsAre(3.f, 3.f));
  EXPECT_THAT(of(MeasuredKind::LayerBackward, plan::LayerType::Head), ElementsAre(0.f, 0.f));
  EXPECT_EQ(measurements.attempts().back().series.size(), 4u);
}

TEST(Measurements, times_that_are_none_are_not_taken) {
  Measurements measurements;
  measurements.begin(1, "1f1b", {"embedding 0 head"}, 1);
  for (int step = 0; step < 3; ++step) measurements.add({report(0, std::nan(""))});
  EXPECT_EQ(find(measurements, 0, MeasuredKind::Forward), nullptr);
  EXPECT_NE(find(measurements, 0, MeasuredKind::Step), nullptr);
}

TEST(JobMeasurements, are_kept_after_the_end_and_by_the_next_coordinator) {
  World world;
  const std::string name = world.run({.steps = 20});
  EXPECT_THAT(message(view_measurements(world.state, name).status()), HasSubstr("nothing is measured yet"));
  EXPECT_EQ(view_measurements(world.state, "other").status().code(), StatusCode::kNotFound);
  for (int64_t step = 0; step < 20; ++step) world.all_report(name, step);
  const StatusOr<MeasurementsView> running = view_measurements(world.state, name);
  ASSERT_TRUE(running.ok()) << running.status();
  ASSERT_EQ(running->attempts.size(), 1u);
  EXPECT_EQ(running->attempts[0].steps, 20 - kWarmUpSteps);
  EXPECT_EQ(running->attempts[0].stages.size(), 2u);

  world.tell(Cancel{1, name, "ann"});
  World after;
  after.tell(Restore{world.archive.jobs()});
  const StatusOr<MeasurementsView> kept = view_measurements(after.state, name);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->attempts, running->attempts);
}

TEST(JobMeasurements, hold_rows_of_experts_and_memory_of_every_attempt_through_a_restart) {
  World world;
  const std::string name = world.run({.has_experts = true, .steps = 20});
  for (int64_t step = 0; step < 20; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      StepReport report = world.step_report(name, rank, step);
      if (rank == 1) report.expert_rows = {{StageIndex(1), LayerIndex(1), 0, {1, 2, 3, 2}, 0}};
      world.say(world.place_of(name, rank).worker, report);
    }
  }
  const StatusOr<MeasurementsView> running = view_measurements(world.state, name);
  ASSERT_TRUE(running.ok()) << running.status();
  const AttemptMeasurements& attempt = running->attempts.at(0);
  ASSERT_THAT(attempt.expert_loads, SizeIs(1));
  EXPECT_EQ(attempt.expert_loads[0].steps, 20 - kWarmUpSteps);
  EXPECT_THAT(attempt.expert_loads[0].rows, ElementsAre(18, 36, 54, 36));
  ASSERT_THAT(attempt.memory, SizeIs(2));
  EXPECT_EQ(attempt.memory, world.job(name).memory);
  world.tell(Cancel{1, name, "ann"});
  World after;
  after.tell(Restore{world.archive.jobs()});
  EXPECT_EQ(view_measurements(after.state, name)->attempts, running->attempts);
}

TEST(JobMeasurements, refuse_rows_of_experts_that_the_model_does_not_have) {
  World world;
  const std::string name = world.run({.has_experts = true, .steps = 20});
  StepReport report = world.step_report(name, 1, 0);
  for (const ExpertRows& wrong : {ExpertRows{StageIndex(1), LayerIndex(4), 0, {1}, 0},
                                  ExpertRows{StageIndex(1), LayerIndex(1), 3, {1, 1}, 0},
                                  ExpertRows{StageIndex(2), LayerIndex(1), 0, {1}, 0}}) {
    report.expert_rows = {wrong};
    world.say(world.place_of(name, 1).worker, report);
  }
  EXPECT_EQ(world.state.refused[static_cast<size_t>(Refusal::Malformed)], 3);
  report.expert_rows = {{StageIndex(1), LayerIndex(3), 0, {1, 1, 1, 1}, 0}};
  world.say(world.place_of(name, 1).worker, report);
  EXPECT_EQ(world.state.refused[static_cast<size_t>(Refusal::Malformed)], 3);
}

TEST(JobMeasurements, split_the_waits_of_a_step_once_all_its_traces_are_in) {
  // Rank 1 asks for an activation 0.75 s before rank 0 has made it, and gets it 0.125 s after that.
  World world;
  const std::string name = world.run({.steps = 20});
  StepTrace first, second;
  first.attempt = world.key(name, 0);
  first.rank = RankIndex(0);
  first.step = second.step = 4;
  first.clock = second.clock = "boot";
  first.works = {{{StageIndex(0), plan::ActionKind::Forward, MicrobatchIndex(0)}, 0, 1'000'000'000, 0}};
  second.attempt = world.key(name, 1);
  second.rank = RankIndex(1);
  second.waits = {{StageIndex(1), plan::Flow::Activation, MicrobatchIndex(0), 250'000'000, 1'125'000'000}};
  world.say(world.place_of(name, 1).worker, second);
  EXPECT_EQ(find(world.job(name).measurements, 1, MeasuredKind::WaitTransfer), nullptr);
  world.say(world.place_of(name, 0).worker, first);
  EXPECT_THAT(find(world.job(name).measurements, 1, MeasuredKind::WaitDependency)->seconds,
              ElementsAre(0.75f));
  EXPECT_THAT(find(world.job(name).measurements, 1, MeasuredKind::WaitTransfer)->seconds,
              ElementsAre(0.125f));
  EXPECT_THAT(find(world.job(name).measurements, 0, MeasuredKind::WaitTransfer)->seconds, ElementsAre(0.f));
}

TEST(JobMeasurements, of_ended_jobs_are_bounded) {
  Options options;
  options.measurement_bytes_of_ended = 1;
  World world(options);
  const std::string name = world.run({.steps = 20});
  for (int64_t step = 0; step < 20; ++step) world.all_report(name, step);
  world.tell(Cancel{1, name, "ann"});
  EXPECT_FALSE(view_measurements(world.state, name).ok());
  EXPECT_TRUE(world.archive.jobs()[0].measurements.empty());
}

TEST(Summarised, is_moved_by_no_outlier) {
  EXPECT_EQ(summarised({}).median, 0);
  EXPECT_EQ(summarised({5}).p95, 5);
  std::vector<float> samples(100, 2.f);
  samples[7] = 1000;
  EXPECT_EQ(summarised(samples).median, 2);
  EXPECT_EQ(summarised(samples).p95, 2);
}

}  // namespace
}  // namespace penstock::coordinator
