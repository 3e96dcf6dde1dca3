// Files of costs, measurements and traces are written by people and by other programs: damage to them may do no more than
// be refused, and what is read must be safe to plan with.
#include <gtest/gtest.h>

#include "plan/calibration/layer_times.h"
#include "plan/diagnosis/diagnose.h"
#include "plan/interop/layer_costs.h"
#include "plan/interop/measured_stages.h"
#include "plan/interop/stage_trace.h"
#include "plan/partition/partition.h"
#include "tests/fuzz/mutator.h"

namespace penstock::plan {
namespace {

using fuzz::Mutator;
using fuzz::Rounds;

constexpr int kRounds = 3000;

const std::vector<std::string> kWords = {"layers",
                                         "time_ms",
                                         "recompute",
                                         "null",
                                         "{}",
                                         "[]",
                                         "-1",
                                         "1e99",
                                         "1e-300",
                                         "9223372036854775807",
                                         "4611686018427387904",
                                         "0",
                                         "\"x\"",
                                         "true"};

TEST(PlanningFilesFuzz, damaged_costs_are_refused_or_cut) {
  Mutator mutator("layer costs", kWords);
  SCOPED_TRACE(fmt::format("PENSTOCK_FUZZ_SEED={}", mutator.seed()));
  const std::string whole =
      R"({"layers": [{"name": "a", "time_ms": 1.5, "activation_bytes": 100, "static_bytes": 1e3},
          {"time_ms": 2, "forward_ms": 0.5, "recompute": {"time_ms": 3, "activation_bytes": 1}},
          {"time_ms": 2, "activation_bytes": 7}, {"time_ms": 4}], "worker_speed": [1, 0.8]})";
  int read = 0;
  for (Rounds rounds(kRounds); rounds.next();) {
    StatusOr<LayerCosts> costs = layer_costs_from_json(mutator.mutated(whole), "x.json");
    if (!costs.ok()) continue;
    PartitionRequest request;
    request.layers = std::move(costs->layers);
    request.rank_speed = std::move(costs->rank_speed);
    request.ranks = 2;
    request.in_flight = {2, 1};
    request.budget_bytes = {mutator.number()};
    const StatusOr<PartitionAnswer> answer = partition(request);
    if (!answer.ok()) continue;
    ++read;
    EXPECT_EQ(answer->plan.boundaries.back(), static_cast<int>(request.layers.size()));
    if (answer->feasible) {
      EXPECT_LE(answer->plan.peak_bytes, request.budget_bytes[0]);
    }
    EXPECT_FALSE(partition_to_json(request, *answer).empty());
  }
  EXPECT_GT(read, 0);
}

TEST(PlanningFilesFuzz, damaged_measurements_are_refused_or_fitted) {
  Mutator mutator("measured stages", kWords);
  SCOPED_TRACE(fmt::format("PENSTOCK_FUZZ_SEED={}", mutator.seed()));
  const std::string whole =
      R"({"stages": [{"layers": {"embedding": 1, "block": 4}, "forward_ms": 9, "backward_ms": 17, "worker": "a"},
          {"layers": {"block": 4}, "forward_ms": 8, "backward_ms": 16, "worker": "b"},
          {"layers": {"block": 4}, "forward_ms": 8.5, "backward_ms": 16, "worker": "a"},
          {"layers": {"block": 4, "head": 1}, "forward_ms": 13, "backward_ms": 26}], "predict": [{"layers": {"head": 1}}]})";
  int read = 0;
  for (Rounds rounds(kRounds); rounds.next();) {
    const StatusOr<MeasuredStages> measured = measured_stages_from_json(mutator.mutated(whole), "x.json");
    if (!measured.ok()) continue;
    const StatusOr<FittedTimes> fitted = fit_layer_times(measured->stages);
    if (!fitted.ok()) continue;
    ++read;
    for (const auto& [type, times] : fitted->types) {
      EXPECT_GE(times.forward.fixed_ms, 0) << type;
      EXPECT_GE(times.backward.per_token_ms, 0) << type;
    }
    EXPECT_FALSE(fitted_to_json(*fitted, {}).empty());
  }
  EXPECT_GT(read, 0);
}

TEST(PlanningFilesFuzz, damaged_traces_are_refused_or_diagnosed) {
  Mutator mutator("stage traces",
                  {"dp0_stage0_F", "dp9_stage4095_B", "raw_ms", "traces", "[]", "-1", "1e99", "null", "0"});
  SCOPED_TRACE(fmt::format("PENSTOCK_FUZZ_SEED={}", mutator.seed()));
  const std::string whole =
      R"({"traces": {"A": {"raw_ms": {"dp0_stage0_F": {"1": [10, 11]}, "dp0_stage0_B": {"1": [20, 21]},
          "dp0_stage1_F": {"1": [10, 11]}, "dp0_stage1_B": {"1": [30, 21]}}}}})";
  int read = 0;
  for (Rounds rounds(kRounds); rounds.next();) {
    const StatusOr<NamedTraces> traces = stage_traces_from_json(mutator.mutated(whole), "x.json");
    if (!traces.ok()) continue;
    for (const auto& [name, trace] : *traces) {
      const StatusOr<Diagnosis> diagnosis = diagnose(trace);
      if (!diagnosis.ok()) continue;
      ++read;
      EXPECT_FALSE(diagnoses_to_json({{name, *diagnosis}}).empty());
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace penstock::plan
