#include "plan/simulation/simulate.h"

#include <algorithm>

#include "plan/simulation/internal/player.h"

namespace penstock::plan {
namespace {

Status check_costs(const ComputeProgram& program, const SimulationCosts& costs) {
  if (static_cast<int>(costs.stages.size()) != program.stages()) {
    return invalid_argument("costs: expected those of {} stages, found {}", program.stages(),
                            costs.stages.size());
  }
  Ticks longest = std::max(costs.overlapped_pair, costs.latency);
  Ticks shortest = std::min(costs.overlapped_pair, costs.latency);
  for (const StageCosts& stage : costs.stages) {
    const auto [least, most] = std::minmax({stage.forward, stage.input_gradient, stage.weight_gradient});
    longest = std::max(longest, most);
    shortest = std::min(shortest, least);
  }
  if (shortest < 0) return invalid_argument("costs: expected 0 or more, found {}", shortest);
  // Not more than a chain of all actions, each with both halves of a
  // pair, both parts of a backward and a transfer.
  Ticks actions = 1;
  for (const auto& of_rank : program.actions) actions += static_cast<Ticks>(of_rank.size());
  constexpr Ticks kLongestSum = INT64_MAX / 8;
  if (longest <= kLongestSum / actions / std::max(program.ranks, 1)) return ok_status();
  return invalid_argument("costs: {} ticks for each of {} actions on {} ranks is more than can be counted",
                          longest, actions, program.ranks);
}

}  // namespace

StatusOr<Simulation> simulate(const ComputeProgram& program, const SimulationCosts& costs,
                              Timeline timeline) {
  PENSTOCK_RETURN_IF_ERROR(check_costs(program, costs));
  internal::Player player(program, costs);
  PENSTOCK_RETURN_IF_ERROR(timeline == Timeline::Aligned ? player.play_aligned() : player.play_earliest());
  return std::move(player).summarise();
}

SimulationCosts uniform_costs(int stages, const StageCosts& costs) {
  SimulationCosts result;
  result.stages.assign(stages, costs);
  return result;
}

}  // namespace penstock::plan
