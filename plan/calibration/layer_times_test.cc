#include "plan/calibration/layer_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plan/schedule/families.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

struct PublishedStages {
  double forward_ms[8];
  double backward_ms[8];
};
struct PublishedRun {
  int vocabulary;
  PublishedStages uniform;
  int redistributed_blocks[8];
  PublishedStages redistributed;
  double redistributed_iteration_ms;
};
#include "plan/calibration/published_runs.inc"

LayerCounts layers_of(int stage, int blocks) {
  LayerCounts layers = {{"block", blocks}};
  if (stage == 0) layers["embedding"] = 1;
  if (stage == 7) layers["head"] = 1;
  return layers;
}

FittedTimes fitted_to_uniform(const PublishedRun& run) {
  std::vector<StageMeasurement> measurements;
  for (int stage = 0; stage < 8; ++stage) {
    measurements.push_back({layers_of(stage, 4), run.uniform.forward_ms[stage],
                            run.uniform.backward_ms[stage], std::nullopt, ""});
  }
  const StatusOr<FittedTimes> fitted = fit_layer_times(measurements);
  EXPECT_TRUE(fitted.ok()) << fitted.status();
  return *fitted;
}

std::vector<StageTime> predicted_redistribution(const PublishedRun& run) {
  const FittedTimes fitted = fitted_to_uniform(run);
  std::vector<StageTime> stages;
  for (int stage = 0; stage < 8; ++stage) {
    stages.push_back(*predict_stage(fitted, layers_of(stage, run.redistributed_blocks[stage])));
  }
  return stages;
}

double iteration_ms(const std::vector<StageTime>& stages, int microbatches) {
  const StatusOr<ComputeProgram> program =
      generate({.name = "1f1b", .ranks = static_cast<int>(stages.size()), .microbatches = microbatches});
  SimulationCosts costs;
  for (const StageTime& stage : stages) {
    costs.stages.push_back({.forward = std::llround(stage.forward_ms * 1e6),
                            .input_gradient = 0,
                            .weight_gradient = 0,
                            .backward = std::llround(stage.backward_ms * 1e6)});
  }
  return static_cast<double>(simulate(*program, costs)->makespan) / 1e6;
}

// The promise of the model: what was never run, from what was.
TEST(LayerTimesTest, the_uniform_run_predicts_the_stages_of_the_redistributed_one) {
  double sum = 0, largest = 0;
  for (const PublishedRun& run : kPublishedRuns) {
    const std::vector<StageTime> predicted = predicted_redistribution(run);
    for (int stage = 0; stage < 8; ++stage) {
      const double measured = run.redistributed.forward_ms[stage] + run.redistributed.backward_ms[stage];
      const double error = 100 * std::abs(predicted[static_cast<size_t>(stage)].total_ms() / measured - 1);
      sum += error;
      largest = std::max(largest, error);
    }
  }
  EXPECT_LE(sum / 32, 1.5);
  EXPECT_LE(largest, 4.5);
}

TEST(LayerTimesTest, and_its_iteration) {
  double sum = 0;
  for (const PublishedRun& run : kPublishedRuns) {
    const double predicted = iteration_ms(predicted_redistribution(run), 128);
    sum += 100 * std::abs(predicted / run.redistributed_iteration_ms - 1);
  }
  EXPECT_LE(sum / 4, 2.0);
}

// Published beside the run: 2.6659 + 5.3312 ms a block, 3.9395 + 4.6722 ms the head.
TEST(LayerTimesTest, types_get_their_published_costs) {
  const FittedTimes fitted = fitted_to_uniform(kPublishedRuns[0]);
  EXPECT_NEAR(fitted.types.at("block").forward.fixed_ms, 2.6659, 0.001);
  EXPECT_NEAR(fitted.types.at("block").backward.fixed_ms, 5.3312, 0.001);
  EXPECT_NEAR(fitted.types.at("head").forward.fixed_ms, 3.9395, 0.003);
  EXPECT_NEAR(fitted.types.at("head").backward.fixed_ms, 4.6722, 0.003);
  EXPECT_EQ(fitted.degrees_of_freedom, 5);
  EXPECT_LT(fitted.mean_error_percent, 1);
  EXPECT_FALSE(fitted.by_tokens);
}

TEST(LayerTimesTest, two_sizes_of_microbatch_part_the_fixed_cost_from_that_of_a_token) {
  std::vector<StageMeasurement> measurements;
  for (const double tokens : {512.0, 2048.0}) {
    const double block = 1 + 0.002 * tokens, head = 0.5 + 0.001 * tokens;
    measurements.push_back({{{"block", 3}}, 3 * block, 6 * block, tokens, ""});
    measurements.push_back({{{"block", 2}, {"head", 1}}, 2 * block + head, 4 * block + 2 * head, tokens, ""});
  }
  const StatusOr<FittedTimes> fitted = fit_layer_times(measurements);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_TRUE(fitted->by_tokens);
  EXPECT_NEAR(fitted->types.at("block").forward.fixed_ms, 1, 1e-9);
  EXPECT_NEAR(fitted->types.at("block").forward.per_token_ms, 0.002, 1e-12);
  EXPECT_NEAR(predict_stage(*fitted, {{"head", 1}}, 4096)->backward_ms, 2 * (0.5 + 4.096), 1e-9);
  EXPECT_THAT(message(predict_stage(*fitted, {{"head", 1}}).status()), HasSubstr("tokens: missing"));
}

TEST(LayerTimesTest, a_slow_worker_is_told_from_a_heavy_stage_where_others_ran_the_same) {
  std::vector<StageMeasurement> measurements;
  for (const char* worker : {"a", "b", "c"}) {
    const double factor = *worker == 'b' ? 1.25 : 1;
    measurements.push_back({{{"block", 4}}, 40 * factor, 80 * factor, std::nullopt, worker});
    measurements.push_back({{{"block", 2}, {"head", 1}}, 50 * factor, 100 * factor, std::nullopt, worker});
  }
  const StatusOr<FittedTimes> fitted = fit_layer_times(measurements);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_NEAR(fitted->worker_factors.at("b"), 1.25, 1e-6);
  EXPECT_NEAR(fitted->worker_factors.at("a"), 1, 1e-6);
  EXPECT_NEAR(fitted->types.at("head").forward.fixed_ms, 30, 1e-4);
  EXPECT_NEAR(fitted->largest_error_percent, 0, 1e-4);
}

TEST(LayerTimesTest, a_worker_that_nobody_can_be_compared_with_has_no_factor) {
  const StatusOr<FittedTimes> fitted =
      fit_layer_times({{{{"block", 4}}, 40, 80, std::nullopt, "a"},
                       {{{"block", 2}, {"head", 1}}, 50, 100, std::nullopt, "b"}});
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_TRUE(fitted->worker_factors.empty());
  EXPECT_EQ(fitted->degrees_of_freedom, 0);
}

TEST(LayerTimesTest, a_cost_that_noise_would_make_negative_is_zero) {
  const StatusOr<FittedTimes> fitted =
      fit_layer_times({{{{"block", 4}}, 40, 80, std::nullopt, ""},
                       {{{"block", 4}, {"embedding", 1}}, 39, 78, std::nullopt, ""}});
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->types.at("embedding").forward.fixed_ms, 0);
  EXPECT_GT(fitted->types.at("block").forward.fixed_ms, 9.7);
}

TEST(LayerTimesTest, a_forward_that_took_nothing_says_that_its_layers_cost_nothing) {
  const auto fitted = fit_layer_times({{{{"embedding", 1}}, 0, 2, std::nullopt, ""},
                                       {{{"embedding", 1}, {"block", 2}}, 4, 8, std::nullopt, ""}});
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_NEAR(fitted->types.at("embedding").forward.fixed_ms, 0, 1e-12);
  EXPECT_NEAR(fitted->types.at("block").backward.fixed_ms, 3, 1e-12);
}

TEST(LayerTimesTest, types_that_always_stand_together_are_refused_by_name) {
  const auto fitted = fit_layer_times({{{{"attention", 2}, {"mlp", 2}}, 40, 80, std::nullopt, ""},
                                       {{{"attention", 3}, {"mlp", 3}}, 60, 120, std::nullopt, ""}});
  EXPECT_THAT(message(fitted.status()), HasSubstr("mlp cannot be told from the other types"));
  EXPECT_THAT(message(fit_layer_times({}).status()), HasSubstr("stages: expected 1 to"));
  EXPECT_THAT(message(fit_layer_times({{{{"block", 1}}, -1, 2, std::nullopt, ""}}).status()),
              HasSubstr("stages[0]"));
  EXPECT_THAT(message(fit_layer_times({{{{"block", 1}}, 1e-300, 2, std::nullopt, ""}}).status()),
              HasSubstr("stages[0]"));
  EXPECT_THAT(message(fit_layer_times({{{}, 1, 2, std::nullopt, ""}}).status()),
              HasSubstr("stages[0].layers"));
}

}  // namespace
}  // namespace penstock::plan
