#include "plan/generation/testing/searched.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/verification/verify.h"

namespace penstock::plan::testing {

int64_t memory_of(ActionKind kind, const MemoryDeltas& deltas) {
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

std::vector<int64_t> peaks_of(const ComputeProgram& program, const std::vector<MemoryDeltas>& deltas) {
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

// says.
SearchReport checked(const GenerationRequest& request) {
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

namespace {

// The judge of the other tests is right about a program that is short enough to count by hand.
TEST(Searched, peaks_are_those_counted_by_hand) {
  ComputeProgram program;
  const auto step = [](int stage, ActionKind kind, int microbatch) {
    return single(StageIndex(stage), kind, MicrobatchIndex(microbatch));
  };
  program.actions = {{step(0, ActionKind::Forward, 0), step(0, ActionKind::Forward, 1),
                      step(0, ActionKind::InputGradient, 0), step(0, ActionKind::Forward, 2),
                      step(0, ActionKind::WeightGradient, 0)},
                     {step(1, ActionKind::Forward, 0), step(1, ActionKind::Backward, 0)}};
  EXPECT_EQ(peaks_of(program, {{2, -1, -1}}), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(peaks_of(program, {{1, 0, -1}, {7, 1, -8}}), (std::vector<int64_t>{3, 7}));
}

}  // namespace
}  // namespace penstock::plan::testing
