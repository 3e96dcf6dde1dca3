#include "plan/planning/internal/playable.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/generation/generate.h"
#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

constexpr int64_t kSearchTries = 2'000;
constexpr int64_t kSearchTicksMax = int64_t{1} << 32;  // of a stage's time: more than its search tells apart

StatusOr<StagePlacement> placement_of(const ComputeProgram& program) {
  if (program.placement == loop_placement(program.ranks, program.stages_per_rank))
    return StagePlacement::Loop;
  if (program.stages_per_rank == 2 && program.placement == v_placement(program.ranks))
    return StagePlacement::V;
  return invalid_argument("holds stages on two ranks each");
}

int64_t in_ticks(int64_t ns, int64_t tick_ns) {
  return ns / tick_ns + (ns % tick_ns * 2 >= tick_ns ? 1 : 0);
}

// A search needs costs before there is a split: those of stages of equal time, where nobody says others; in ticks of which the
// longest is not more than kSearchTicksMax.
SimulationCosts search_costs(const PlanningRequest& request, int stages) {
  if (request.search_costs) return uniform_costs(stages, *request.search_costs);
  int64_t forward = 0, total = 0;
  for (size_t layer = 0; layer < request.layers.size(); ++layer) {
    forward += request.forward_ns[layer];
    total += request.layers[layer].keep.time_ns;
  }
  const int64_t longest_ns = std::max(total / stages, request.latency_ns);
  const int64_t tick_ns = longest_ns <= kSearchTicksMax ? 1 : longest_ns / kSearchTicksMax + 1;
  const int64_t backward = in_ticks((total - forward) / stages, tick_ns);
  SimulationCosts costs = uniform_costs(stages, {.forward = in_ticks(forward / stages, tick_ns),
                                                 .input_gradient = backward - backward / 2,
                                                 .weight_gradient = backward / 2});
  costs.latency = in_ticks(request.latency_ns, tick_ns);
  return costs;
}

MemoryLimits search_limits(const PlanningRequest& request, const ScheduleChoice& choice) {
  if (!request.search_limit) return {};
  const int64_t all = int64_t{request.microbatches} * choice.stages_per_rank;
  return {.deltas = {}, .limits = {*request.search_limit == 0 ? all : *request.search_limit}};
}

StatusOr<ComputeProgram> program_of(const PlanningRequest& request, const ScheduleChoice& choice) {
  if (request.program && choice == request.asked) return *request.program;
  GenerationRequest generation;
  generation.schedule = {.name = choice.schedule,
                         .ranks = request.ranks,
                         .microbatches = request.microbatches,
                         .stages_per_rank = choice.stages_per_rank};
  if (is_searched_schedule(choice.schedule)) {
    generation.costs = search_costs(request, request.ranks * choice.stages_per_rank);
    generation.memory = search_limits(request, choice);
    generation.search.evaluations_max =
        request.start_search ? std::numeric_limits<int64_t>::max() : kSearchTries;
    if (request.start_search) generation.search.keep_going = request.start_search();
  }
  PENSTOCK_ASSIGN_OR_RETURN(GeneratedSchedule generated, generate(generation));
  return std::move(generated.program);
}

bool splits_backwards(const ComputeProgram& program) {
  const auto is_half = [](const Action& action) {
    return is_half_backward(action.work.kind) ||
           (action.overlapped && is_half_backward(action.overlapped->kind));
  };
  return std::any_of(program.actions.begin(), program.actions.end(), [&](const std::vector<Action>& list) {
    return std::any_of(list.begin(), list.end(), is_half);
  });
}

std::vector<LayerCost> layers_for(const PlanningRequest& request, const ComputeProgram& program) {
  std::vector<LayerCost> layers = request.layers;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    layers[layer].keep.time_ns += update_share_ns(request, layer);
    if (layers[layer].recompute) layers[layer].recompute->time_ns += update_share_ns(request, layer);
  }
  if (request.split_backward_bytes.empty() || !splits_backwards(program)) return layers;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    layers[layer].keep.activation_bytes += request.split_backward_bytes[layer];
    layers[layer].recompute.reset();
  }
  return layers;
}

}  // namespace

int64_t update_share_ns(const PlanningRequest& request, size_t layer) {
  return request.update_ns.empty() ? 0 : request.update_ns[layer] / std::max(1, request.microbatches);
}

StatusOr<Playable> make_playable(const PlanningRequest& request, const ScheduleChoice& choice) {
  Playable made;
  made.choice = choice;
  PENSTOCK_ASSIGN_OR_RETURN(made.program, program_of(request, choice));
  PartitionRequest& partition = made.partition;
  PENSTOCK_ASSIGN_OR_RETURN(partition.placement, placement_of(made.program));
  partition.layers = layers_for(request, made.program);
  partition.ranks = request.ranks;
  partition.stages_per_rank = choice.stages_per_rank;
  partition.in_flight = high_water_per_stage(made.program);
  partition.rank_speed = request.rank_speed;
  partition.budget_bytes = request.budget_bytes;
  partition.current_rank = request.current_rank;
  partition.keep_going = request.keep_going;
  return made;
}

}  // namespace penstock::plan
