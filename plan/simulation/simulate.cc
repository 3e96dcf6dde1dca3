#include "plan/simulation/simulate.h"

#include "plan/simulation/internal/check_costs.h"
#include "plan/simulation/internal/lowered_player.h"
#include "plan/simulation/internal/player.h"

namespace penstock::plan {
namespace {

internal::ProgramSize size_of(const ComputeProgram& program) {
  int64_t actions = 0;
  for (const auto& of_rank : program.actions) actions += static_cast<int64_t>(of_rank.size());
  return {program.ranks, program.stages(), actions, program.updates};
}

}  // namespace

StatusOr<Simulation> simulate(const ComputeProgram& program, const SimulationCosts& costs,
                              Timeline timeline) {
  PENSTOCK_RETURN_IF_ERROR(internal::check_costs(size_of(program), costs));
  internal::Player player(program, costs);
  PENSTOCK_RETURN_IF_ERROR(timeline == Timeline::Aligned ? player.play_aligned() : player.play_earliest());
  return std::move(player).summarise();
}

StatusOr<Simulation> simulate(const LoweredProgram& program, const SimulationCosts& costs) {
  if (program.ranks.empty()) return invalid_argument("simulation: the program has no ranks");
  int64_t instructions = 0;
  for (const RankProgram& rank : program.ranks)
    instructions += static_cast<int64_t>(rank.instructions.size());
  const int ranks = static_cast<int>(program.ranks.size());
  PENSTOCK_RETURN_IF_ERROR(internal::check_costs({ranks, program.ranks.front().stages, instructions}, costs));
  if (!costs.updates.empty())
    return invalid_argument("costs: updates: a lowered program has its own, expected none");
  return internal::LoweredPlayer(program, costs).play();
}

Ticks longest_time(const ComputeProgram& program) {
  return internal::longest_time(size_of(program), 1);
}

SimulationCosts uniform_costs(int stages, const StageCosts& costs) {
  SimulationCosts result;
  result.stages.assign(stages, costs);
  return result;
}

}  // namespace penstock::plan
