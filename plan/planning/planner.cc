#include "plan/planning/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "plan/generation/generate.h"
#include "plan/schedule/families.h"
#include "plan/schedule/program.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {
namespace {

constexpr int kCurvePoints = 8;
constexpr int64_t kRankBytesMax = int64_t{1} << 50;
constexpr int64_t kSearchTries = 2'000;
constexpr int kMovesMax = 12;                     // of a layer, after the exact split
constexpr int64_t kPlayedActionsMax = 3'000'000;  // by all simulations of those moves
constexpr int kLatencyNsMax = 1'000'000'000;
constexpr int64_t kUpdateNsMax = 1'000'000'000'000'000;
constexpr int64_t kSearchTicksMax = int64_t{1} << 32;  // of a stage's time: more than its search tells apart

size_t at(int index) {
  return static_cast<size_t>(index);
}

// --- a schedule, and what it says about memory.

struct Made {
  ScheduleChoice choice;
  ComputeProgram program;
  PartitionRequest partition;  // with its in-flight counts
};

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

// Nanoseconds of a tick, so that the longest time is not more than `most` ticks.
int64_t tick_for(int64_t longest_ns, int64_t most) {
  return longest_ns <= most ? 1 : longest_ns / std::max<int64_t>(1, most) + 1;
}

// A search needs costs before there is a split: those of stages of equal time, where nobody says others.
SimulationCosts search_costs(const PlanningRequest& request, int stages) {
  if (request.search_costs) return uniform_costs(stages, *request.search_costs);
  int64_t forward = 0, total = 0;
  for (size_t layer = 0; layer < request.layers.size(); ++layer) {
    forward += request.forward_ns[layer];
    total += request.layers[layer].keep.time_ns;
  }
  const int64_t tick_ns = tick_for(std::max(total / stages, request.latency_ns), kSearchTicksMax);
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

// What of a layer's update counts as part of each microbatch.
int64_t update_share_ns(const PlanningRequest& request, size_t layer) {
  return request.update_ns.empty() ? 0 : request.update_ns[layer] / std::max(1, request.microbatches);
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

StatusOr<Made> make(const PlanningRequest& request, const ScheduleChoice& choice) {
  Made made;
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
  return made;
}

// --- a split, played.

bool has_updates(const PlanningRequest& request, const Made& made) {
  return request.updates_wait && made.program.updates == 1 && !request.update_ns.empty();
}

int64_t at_speed(const PlanningRequest& request, int rank, int64_t ns) {
  constexpr double kLongest = 4e18;
  if (request.rank_speed.empty()) return ns;
  const double speed = static_cast<double>(request.rank_speed[at(rank)]) / kSpeedUnit;
  return std::llround(std::min(static_cast<double>(ns) / speed, kLongest));
}

// Forward and backward of every stage, and updates; what recomputes does so in the backward.
SimulationCosts costs_of(const PlanningRequest& request, const Made& made, const Partition& partition) {
  SimulationCosts costs;
  costs.latency = request.latency_ns;
  const bool updates = has_updates(request, made);
  if (updates) costs.updates.resize(at(request.ranks));
  for (int stage = 0; stage + 1 < static_cast<int>(partition.boundaries.size()); ++stage) {
    const int rank = rank_of_stage(made.partition.placement, request.ranks, stage);
    int64_t forward = 0, update = 0, share = 0;
    for (int layer = partition.boundaries[at(stage)]; layer < partition.boundaries[at(stage + 1)]; ++layer) {
      forward += request.forward_ns[at(layer)];
      if (!updates) continue;
      update += request.update_ns[at(layer)];
      share += update_share_ns(request, at(layer));
    }
    if (updates) costs.updates[at(rank)] += at_speed(request, rank, update);
    forward = at_speed(request, rank, forward);
    const int64_t total = partition.stage_ns[at(stage)] - at_speed(request, rank, share);
    const int64_t backward = std::max<int64_t>(0, total - forward);
    costs.stages.push_back({.forward = forward,
                            .input_gradient = backward - backward / 2,
                            .weight_gradient = backward / 2,
                            .backward = backward});
  }
  return costs;
}

int64_t longest_ns(const SimulationCosts& costs) {
  int64_t longest = costs.latency;
  for (const StageCosts& stage : costs.stages) longest = std::max({longest, stage.forward, *stage.backward});
  for (const Ticks update : costs.updates) longest = std::max(longest, update);
  return longest;
}

SimulationCosts coarser(SimulationCosts costs, int64_t tick_ns) {
  costs.latency = in_ticks(costs.latency, tick_ns);
  for (Ticks& update : costs.updates) update = in_ticks(update, tick_ns);
  for (StageCosts& stage : costs.stages) {
    stage.forward = in_ticks(stage.forward, tick_ns);
    stage.backward = in_ticks(*stage.backward, tick_ns);
    stage.weight_gradient = *stage.backward / 2;
    stage.input_gradient = *stage.backward - stage.weight_gradient;
  }
  return costs;
}

std::string limit_of(const Made& made, const PlannedStep& step,
                     const std::optional<OversizedLayer>& oversized) {
  const Partition& plan = step.partition;
  const auto slowest = std::max_element(plan.rank_ns.begin(), plan.rank_ns.end()) - plan.rank_ns.begin();
  const double mean =
      static_cast<double>(std::accumulate(plan.rank_ns.begin(), plan.rank_ns.end(), int64_t{0})) /
      static_cast<double>(plan.rank_ns.size());
  const double above = mean > 0 ? static_cast<double>(plan.slowest_ns) / mean - 1 : 0;
  if (oversized && plan.slowest_ns == oversized->time_ns) {
    return fmt::format("{} alone", made.partition.layers[at(oversized->layer)].name);
  }
  if (!plan.recomputed.empty()) return "memory: layers recompute";
  if (above > 0.05) return fmt::format("rank {}, {:.0f} % above the mean", slowest, 100 * above);
  return step.bubble_fraction > 0.05 ? "the bubble" : "the work itself";
}

StatusOr<PlannedStep> play(const PlanningRequest& request, const Made& made, Partition partition) {
  PlannedStep step;
  step.choice = made.choice;
  step.placement = made.partition.placement;
  const SimulationCosts costs = costs_of(request, made, partition);
  const int64_t tick_ns = tick_for(longest_ns(costs), longest_time(made.program));
  PENSTOCK_ASSIGN_OR_RETURN(const Simulation simulation, simulate(made.program, coarser(costs, tick_ns)));
  step.partition = std::move(partition);
  const int64_t ticks = simulation.makespan / made.program.updates;
  if (ticks > std::numeric_limits<int64_t>::max() / tick_ns)
    return invalid_argument("a step takes longer than 292 years");
  step.step_ns = ticks * tick_ns;
  step.bubble_fraction = simulation.bubble_fraction;
  return step;
}

bool is_better(const PlannedStep& a, const PlannedStep& b) {
  if (a.step_ns != b.step_ns) return a.step_ns < b.step_ns;
  return a.partition.peak_bytes < b.partition.peak_bytes;
}

bool is_over(const PlanningRequest& request) {
  return request.keep_going && !request.keep_going();
}

// Shifts the boundaries from `first` to `last`: one layer is handed from a stage to another one. Nothing where a stage would be
// left without one.
std::optional<std::vector<int>> with_layer_handed_on(const std::vector<int>& boundaries, size_t first,
                                                     size_t last, int by) {
  const bool is_emptied =
      by < 0 ? boundaries[first] - 1 == boundaries[first - 1] : boundaries[last] + 1 == boundaries[last + 1];
  if (is_emptied) return std::nullopt;
  std::vector<int> moved = boundaries;
  for (size_t boundary = first; boundary <= last; ++boundary) moved[boundary] += by;
  return moved;
}

// Tries splits beside the best one. Every split that is played costs a simulation, which come from one allowance.
class Neighbours {
 public:
  Neighbours(const PlanningRequest& request, const Made& made) : request_(request), made_(made) {
    int64_t actions = 0;
    for (const auto& list : made.program.actions) actions += static_cast<int64_t>(list.size());
    left_ = kPlayedActionsMax / std::max<int64_t>(1, actions);
  }

  // The best split with one layer handed on, or `best`.
  StatusOr<PlannedStep> improve(const PlannedStep& best) {
    PlannedStep better = best;
    const std::vector<int>& boundaries = best.partition.boundaries;
    for (size_t first = 1; first + 1 < boundaries.size(); ++first) {
      for (size_t last = first; last + 1 < boundaries.size(); ++last) {
        for (const int by : {-1, 1}) {
          const auto moved = with_layer_handed_on(boundaries, first, last, by);
          if (!moved) continue;
          if (is_spent()) return better;
          PENSTOCK_RETURN_IF_ERROR(try_split(*moved, better));
        }
      }
    }
    return better;
  }

  bool is_spent() {
    if (left_ > 0 && is_over(request_)) left_ = 0;
    return left_ == 0;
  }

 private:
  Status try_split(const std::vector<int>& boundaries, PlannedStep& better) {
    --left_;
    StatusOr<Partition> partition = evaluate_partition(made_.partition, boundaries);
    if (!partition.ok()) return ok_status();  // beyond the budget
    PENSTOCK_ASSIGN_OR_RETURN(PlannedStep step, play(request_, made_, *std::move(partition)));
    if (step.step_ns < better.step_ns) better = std::move(step);
    return ok_status();
  }

  const PlanningRequest& request_;
  const Made& made_;
  int64_t left_ = 0;  // splits that may still be played
};

// Hands single layers on while a step gets faster; bounded by what the simulations may cost.
StatusOr<PlannedStep> fastest(const PlanningRequest& request, const Made& made, Partition partition) {
  PENSTOCK_ASSIGN_OR_RETURN(PlannedStep best, play(request, made, std::move(partition)));
  Neighbours neighbours(request, made);
  for (int move = 0; move < kMovesMax && !neighbours.is_spent(); ++move) {
    PENSTOCK_ASSIGN_OR_RETURN(PlannedStep better, neighbours.improve(best));
    if (better.step_ns >= best.step_ns) break;
    best = std::move(better);
  }
  return best;
}

// --- the answer.

Status check(const PlanningRequest& request) {
  if (request.forward_ns.size() != request.layers.size()) {
    return invalid_argument("forward times: expected {}, one a layer, found {}", request.layers.size(),
                            request.forward_ns.size());
  }
  for (size_t layer = 0; layer < request.layers.size(); ++layer) {
    if (request.forward_ns[layer] < 0 || request.forward_ns[layer] > request.layers[layer].keep.time_ns) {
      return invalid_argument("layers[{}]: expected a forward within its time", layer);
    }
  }
  if (!request.split_backward_bytes.empty() && request.split_backward_bytes.size() != request.layers.size()) {
    return invalid_argument("bytes of split backwards: expected {}, one a layer, found {}",
                            request.layers.size(), request.split_backward_bytes.size());
  }
  if (!request.update_ns.empty() && request.update_ns.size() != request.layers.size()) {
    return invalid_argument("updates: expected {}, one a layer, found {}", request.layers.size(),
                            request.update_ns.size());
  }
  for (const int64_t update : request.update_ns) {
    if (update >= 0 && update <= kUpdateNsMax) continue;
    return invalid_argument("updates: expected 0 to {} ns, found {}", kUpdateNsMax, update);
  }
  if (request.rank_bytes < 0 || request.rank_bytes > kRankBytesMax) {
    return invalid_argument("bytes of a rank: expected 0 to {}, found {}", kRankBytesMax, request.rank_bytes);
  }
  if (request.latency_ns < 0 || request.latency_ns > kLatencyNsMax) {
    return invalid_argument("latency: expected 0 to 1 s, found {} ns", request.latency_ns);
  }
  return ok_status();
}

void note_smallest(const PartitionAnswer& answer, PlanningAnswer& planned) {
  if (!answer.smallest_budget) return;
  if (!planned.smallest_budget || *answer.smallest_budget < *planned.smallest_budget) {
    planned.smallest_budget = answer.smallest_budget;
  }
}

void add_searched_program(const PlanningRequest& request, const Made& made, PlannedStep& step) {
  const bool is_given = request.program && made.choice == request.asked;
  if (is_searched_schedule(made.choice.schedule) && !is_given) step.program = made.program;
}

// Adds the best plan with one schedule, or why there is none.
void add_plan(const PlanningRequest& request, const ScheduleChoice& choice, PlanningAnswer& planned) {
  const auto leave_out = [&](std::string reason) { planned.left_out.push_back({choice, std::move(reason)}); };
  StatusOr<Made> made = make(request, choice);
  if (!made.ok()) return leave_out(message(made.status()));
  StatusOr<PartitionAnswer> answer = partition(made->partition);
  if (!answer.ok()) return leave_out(message(answer.status()));
  planned.oversized = answer->oversized;
  if (!answer->feasible) {
    note_smallest(*answer, planned);
    return leave_out(
        fmt::format("does not fit; needs {} bytes", *answer->smallest_budget + request.rank_bytes));
  }
  StatusOr<PlannedStep> step = fastest(request, *made, std::move(answer->plan));
  if (!step.ok()) return leave_out(message(step.status()));
  step->limit = limit_of(*made, *step, planned.oversized);
  add_searched_program(request, *made, *step);
  planned.plans.push_back(*std::move(step));
}

void add_plans(const PlanningRequest& request, PlanningAnswer& planned) {
  for (const ScheduleChoice& choice : request.among) {
    planned.is_cut_short = planned.is_cut_short || is_over(request);
    if (planned.is_cut_short && !planned.plans.empty())
      planned.not_reached.push_back(choice);
    else
      add_plan(request, choice, planned);
  }
  planned.is_cut_short = planned.is_cut_short || is_over(request);
}

void add_baseline(const PlanningRequest& request, const std::string& name, Lighter lighter,
                  PlanningAnswer& planned) {
  const auto boundaries = counted_split(static_cast<int>(request.layers.size()),
                                        request.ranks * request.asked.stages_per_rank, lighter);
  Baseline baseline{name, std::nullopt, "the model has too few layers for it"};
  if (boundaries) {
    StatusOr<PlannedStep> step = simulate_split(request, request.asked, *boundaries);
    baseline.why_not = step.ok() ? "" : message(step.status());
    if (step.ok()) baseline.step = *std::move(step);
  }
  planned.baselines.push_back(std::move(baseline));
}

// Splits whose times are too long to be played are not shown.
Status add_curve(const PlanningRequest& request, PlanningAnswer& planned) {
  if (planned.plans.empty()) return ok_status();
  PlanningRequest of_best = request;
  of_best.asked = planned.plans.front().choice;
  if (of_best.asked != request.asked) of_best.program.reset();
  if (planned.plans.front().program) of_best.program = planned.plans.front().program;
  PENSTOCK_ASSIGN_OR_RETURN(const Made made, make(of_best, of_best.asked));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Partition> partitions,
                            time_memory_curve(made.partition, kCurvePoints));
  for (Partition& partition : partitions) {
    StatusOr<PlannedStep> step = play(request, made, std::move(partition));
    if (step.ok()) planned.curve.push_back(*std::move(step));
  }
  return ok_status();
}

StatusOr<PlanningAnswer> plan_layers(const PlanningRequest& request) {
  PlanningAnswer planned;
  add_plans(request, planned);
  std::stable_sort(planned.plans.begin(), planned.plans.end(), is_better);
  if (!planned.plans.empty()) planned.smallest_budget.reset();
  if (request.only_plans) return planned;
  add_baseline(request, "uniform", Lighter::None, planned);
  add_baseline(request, "last-lighter", Lighter::Last, planned);
  add_baseline(request, "ends-lighter", Lighter::Ends, planned);
  PENSTOCK_RETURN_IF_ERROR(add_curve(request, planned));
  return planned;
}

void add_to_ranks(int64_t bytes, PlannedStep& step) {
  for (int64_t& rank : step.partition.rank_bytes) rank += bytes;
  step.partition.peak_bytes += bytes;
}

}  // namespace

StatusOr<PlanningAnswer> plan_training(const PlanningRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check(request));
  PlanningRequest of_layers = request;
  if (request.budget_bytes) {
    of_layers.budget_bytes = std::max<int64_t>(0, *request.budget_bytes - request.rank_bytes);
  }
  PENSTOCK_ASSIGN_OR_RETURN(PlanningAnswer planned, plan_layers(of_layers));
  for (PlannedStep& step : planned.plans) add_to_ranks(request.rank_bytes, step);
  for (PlannedStep& step : planned.curve) add_to_ranks(request.rank_bytes, step);
  for (Baseline& baseline : planned.baselines) {
    if (baseline.step) add_to_ranks(request.rank_bytes, *baseline.step);
  }
  if (planned.smallest_budget) *planned.smallest_budget += request.rank_bytes;
  return planned;
}

StatusOr<PlannedStep> simulate_split(const PlanningRequest& request, const ScheduleChoice& choice,
                                     const std::vector<int>& boundaries) {
  PENSTOCK_RETURN_IF_ERROR(check(request));
  PENSTOCK_ASSIGN_OR_RETURN(const Made made, make(request, choice));
  PENSTOCK_ASSIGN_OR_RETURN(Partition partition, evaluate_partition(made.partition, boundaries));
  PENSTOCK_ASSIGN_OR_RETURN(PlannedStep step, play(request, made, std::move(partition)));
  step.limit = limit_of(made, step, std::nullopt);
  add_searched_program(request, made, step);
  return step;
}

std::vector<ScheduleChoice> schedules_to_plan(bool searched) {
  std::vector<ScheduleChoice> choices = {{"gpipe", 1},
                                         {"1f1b", 1},
                                         {"interleaved-1f1b", 2},
                                         {"interleaved-1f1b", 3},
                                         {"interleaved-1f1b", 4},
                                         {"looped-bfs", 2},
                                         {"1f1b-v", 2},
                                         {"zb-h1", 1},
                                         {"zb-h2", 1},
                                         {"zb-v", 2},
                                         {"v-half", 2},
                                         {"v-min", 2}};
  if (!searched) return choices;
  choices.push_back({"zb-auto", 1});
  choices.push_back({"v-auto", 2});
  return choices;
}

std::optional<std::vector<int>> counted_split(int layers, int stages, Lighter lighter) {
  const int counted = layers - 2 + (lighter == Lighter::None ? 0 : lighter == Lighter::Last ? 1 : 2);
  if (layers < 3 || counted < stages) return std::nullopt;
  std::vector<int> boundaries = equal_counts(counted, stages);
  if (lighter != Lighter::Ends) {  // then the embedding does not count
    for (int& boundary : boundaries) ++boundary;
  }
  boundaries.front() = 0;
  boundaries.back() = layers;
  return boundaries;
}

}  // namespace penstock::plan
