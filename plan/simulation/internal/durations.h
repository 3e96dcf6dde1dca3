// How long work takes when nothing slows it.
#pragma once

#include "plan/schedule/action.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

inline Ticks duration_of(const SimulationCosts& costs, const Work& work) {
  const StageCosts& stage = costs.stages[static_cast<size_t>(work.stage.value)];
  switch (work.kind) {
    case ActionKind::Forward:
      return stage.forward;
    case ActionKind::Backward:
      return stage.fused_backward();
    case ActionKind::InputGradient:
      return stage.input_gradient;
    case ActionKind::WeightGradient:
      return stage.weight_gradient;
  }
  return 0;
}

inline Ticks duration_of(const SimulationCosts& costs, const Action& action) {
  if (!action.overlapped) return duration_of(costs, action.work);
  if (costs.overlapped_pair > 0) return costs.overlapped_pair;
  return duration_of(costs, action.work) + duration_of(costs, *action.overlapped);
}

}  // namespace penstock::plan::internal
