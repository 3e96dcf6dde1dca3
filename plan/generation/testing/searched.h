// Runs a search as a user would and checks what every answer must be, by means other than the search's own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/generation/generate.h"
#include "plan/simulation/simulate.h"
#include "plan/verification/verify.h"

namespace penstock::plan::testing {

inline GenerationRequest request_for(const std::string& name, int ranks, int microbatches,
                                     const StageCosts& costs, int64_t limit,
                                     const MemoryDeltas& deltas = {}) {
  GenerationRequest request;
  request.schedule.name = name;
  request.schedule.ranks = ranks;
  request.schedule.microbatches = microbatches;
  request.costs = uniform_costs(name == "v-auto" ? 2 * ranks : ranks, costs);
  request.memory.deltas = {deltas};
  request.memory.limits = {limit};
  return request;
}

inline int64_t memory_of(ActionKind kind, const MemoryDeltas& deltas) {
  switch (kind) {
    case ActionKind::Forward:
      return deltas.forward;
    case ActionKind::InputGradient:
      return deltas.input_gradient;
    case ActionKind::WeightGradient:
      return deltas.weight_gradient;
    case ActionKind::Backward:
      return deltas.input_gradient + deltas.weight_gradient;
  }
  return 0;
}

// Most memory in use on each rank of a program, counted action by action.
inline std::vector<int64_t> peaks_of(const ComputeProgram& program, const std::vector<MemoryDeltas>& deltas) {
  std::vector<int64_t> peaks;
  for (const auto& actions : program.actions) {
    int64_t held = 0, peak = 0;
    for (const Action& action : actions) {
      held += memory_of(action.work.kind, deltas.size() == 1 ? deltas[0] : deltas[action.work.stage.value]);
      peak = std::max(peak, held);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

// The answer, which is valid, accumulates in microbatch order, keeps its limits, and takes the time that it
// says.
inline SearchReport checked(const GenerationRequest& request) {
  const StatusOr<GeneratedSchedule> generated = generate(request);
  EXPECT_TRUE(generated.ok()) << message(generated.status());
  if (!generated.ok() || !generated->search) return {};
  const SearchReport& report = *generated->search;
  const Verdict verdict = verify(generated->program);
  EXPECT_TRUE(verdict.valid()) << verdict.violations.front().to_string();
  EXPECT_TRUE(verdict.bit_identical);
  const std::vector<int64_t> peaks = peaks_of(generated->program, request.memory.deltas);
  EXPECT_EQ(peaks, report.memory_peaks);
  for (size_t rank = 0; rank < peaks.size(); ++rank) EXPECT_LE(peaks[rank], report.memory_limits[rank]);
  const StatusOr<Simulation> simulation = simulate(generated->program, *request.costs);
  EXPECT_TRUE(simulation.ok()) << message(simulation.status());
  if (!simulation.ok()) return {};
  EXPECT_EQ(simulation->max_stage_span, report.max_stage_span);
  EXPECT_EQ(simulation->makespan, report.makespan);
  EXPECT_LE(report.bound, report.max_stage_span);
  EXPECT_EQ(report.optimal, report.bound == report.max_stage_span);
  EXPECT_LE(report.evaluations, request.search.evaluations_max);
  return report;
}

}  // namespace penstock::plan::testing
