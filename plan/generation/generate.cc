#include "plan/generation/generate.h"

#include <algorithm>

#include "plan/generation/internal/bounds.h"
#include "plan/generation/internal/problem.h"
#include "plan/generation/internal/search.h"
#include "plan/schedule/limits.h"

namespace penstock::plan {
namespace {

using internal::Problem;

constexpr const char* kZeroBubble = "zb-auto";
constexpr const char* kVShaped = "v-auto";
// Sums of times and of memory stay far below what 64 bits hold.
constexpr int64_t kSumMax = int64_t{1} << 56;
constexpr int64_t kMemoryMax = int64_t{1} << 40;

Status check_range(const char* field, int value, int maximum) {
  if (value >= 1 && value <= maximum) return ok_status();
  return invalid_argument("{}: expected 1 to {}, found {}", field, maximum, value);
}

int stages_per_rank_of(const std::string& name) {
  return name == kVShaped ? 2 : 1;
}

Status check_shape(const ScheduleRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check_range("ranks", request.ranks, limits::kRanks));
  PENSTOCK_RETURN_IF_ERROR(check_range("microbatches", request.microbatches, limits::kMicrobatches));
  const int expected = stages_per_rank_of(request.name);
  if (request.stages_per_rank != 0 && request.stages_per_rank != expected) {
    return invalid_argument("stages_per_rank: schedule '{}' has {}, found {}", request.name, expected,
                            request.stages_per_rank);
  }
  if (request.updates != 1)
    return invalid_argument("updates: schedule '{}' takes 1, found {}", request.name, request.updates);
  const int64_t actions = int64_t{3} * request.ranks * request.microbatches * expected;
  if (actions <= limits::kActions) return ok_status();
  return invalid_argument(
      "microbatches: {} ranks x {} microbatches x {} stages a rank x 3 are {} actions, at most {}",
      request.ranks, request.microbatches, expected, actions, limits::kActions);
}

Status check_costs(const Problem& problem) {
  Ticks left = kSumMax / problem.microbatches;
  const auto take = [&](Ticks cost) { return cost >= 0 && cost <= left && (left -= cost) >= 0; };
  for (int stage = 0; stage < problem.stages(); ++stage) {
    const StageCosts& costs = problem.costs[stage];
    if (take(costs.forward) && take(costs.input_gradient) && take(costs.weight_gradient) &&
        take(problem.latency) && take(problem.latency)) {
      continue;
    }
    return invalid_argument(
        "costs: expected 0 or more, and at most {} ticks for all stages, microbatches and latencies together, found "
        "more at stage {} ({}, {}, {}, latency {}); fewer decimals make larger ticks",
        kSumMax, stage, costs.forward, costs.input_gradient, costs.weight_gradient, problem.latency);
  }
  return ok_status();
}

Status check_deltas(const MemoryDeltas& deltas, int stage) {
  const auto is_within = [](int64_t value, int64_t minimum) {
    return value >= minimum && value <= kMemoryMax;
  };
  if (is_within(deltas.forward, 1) && is_within(deltas.input_gradient, -deltas.forward) &&
      deltas.weight_gradient == -(deltas.forward + deltas.input_gradient)) {
    return ok_status();
  }
  return invalid_argument(
      "memory deltas of stage {}: expected a forward that takes 1 to {}, nothing negative in between, and a sum of 0, "
      "found F {}, I {}, W {}",
      stage, kMemoryMax, deltas.forward, deltas.input_gradient, deltas.weight_gradient);
}

// One per stage or rank, or one for all of them.
template <typename Value>
StatusOr<std::vector<Value>> spread(const char* field, const std::vector<Value>& values, int count) {
  if (values.size() == 1) return std::vector<Value>(count, values.front());
  if (static_cast<int>(values.size()) == count) return values;
  return invalid_argument("{}: expected 1 or {}, found {}", field, count, values.size());
}

std::vector<int64_t> default_limits(const Problem& problem) {
  std::vector<int64_t> limits(problem.ranks, 0);
  for (int stage = 0; stage < problem.stages(); ++stage) {
    const MemoryDeltas& deltas = problem.deltas[stage];
    limits[problem.rank_of(stage)] +=
        problem.ranks * std::max(deltas.forward, deltas.forward + deltas.input_gradient);
  }
  return limits;
}

Status check_limits(const Problem& problem) {
  const std::vector<int64_t> smallest = internal::smallest_limits(problem);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    if (problem.limits[rank] > int64_t{limits::kRanks} * kMemoryMax)
      return invalid_argument("memory limit of rank {}: expected at most {}, found {}", rank,
                              int64_t{limits::kRanks} * kMemoryMax, problem.limits[rank]);
    if (problem.limits[rank] >= smallest[rank]) continue;
    return invalid_argument(
        "memory limit of rank {}: {} holds not even one microbatch at a time; the smallest that works is {}",
        rank, problem.limits[rank], smallest[rank]);
  }
  return ok_status();
}

StatusOr<Problem> make_problem(const GenerationRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check_shape(request.schedule));
  Problem problem{.ranks = request.schedule.ranks,
                  .stages_per_rank = stages_per_rank_of(request.schedule.name),
                  .microbatches = request.schedule.microbatches,
                  .latency = request.costs ? request.costs->latency : 0,
                  .costs = request.costs ? request.costs->stages : std::vector<StageCosts>{StageCosts{}}};
  PENSTOCK_ASSIGN_OR_RETURN(problem.costs, spread("costs", problem.costs, problem.stages()));
  PENSTOCK_RETURN_IF_ERROR(check_costs(problem));

  const auto& deltas = request.memory.deltas;
  PENSTOCK_ASSIGN_OR_RETURN(
      problem.deltas,
      spread("memory deltas", deltas.empty() ? std::vector<MemoryDeltas>{MemoryDeltas{}} : deltas,
             problem.stages()));
  for (int stage = 0; stage < problem.stages(); ++stage)
    PENSTOCK_RETURN_IF_ERROR(check_deltas(problem.deltas[stage], stage));

  const auto& limits = request.memory.limits;
  PENSTOCK_ASSIGN_OR_RETURN(
      problem.limits,
      spread("memory limits", limits.empty() ? default_limits(problem) : limits, problem.ranks));
  internal::add_lanes(problem);
  PENSTOCK_RETURN_IF_ERROR(check_limits(problem));
  return problem;
}

SearchReport report_of(const Problem& problem, const internal::Found& found) {
  const internal::Bound bound = internal::bound_of(problem);
  SearchReport report{.max_stage_span = found.score.max_stage_span,
                      .makespan = found.score.makespan,
                      .bound = bound.max_stage_span,
                      .bound_reason = bound.reason,
                      .optimal = found.score.max_stage_span == bound.max_stage_span,
                      .evaluations = found.evaluations,
                      .memory_peaks = internal::memory_peaks(problem, found.orders),
                      .memory_limits = problem.limits};
  if (report.bound > 0)
    report.gap_percent =
        100 * static_cast<double>(report.max_stage_span - report.bound) / static_cast<double>(report.bound);
  return report;
}

}  // namespace

bool is_searched(const std::string& name) {
  return name == kZeroBubble || name == kVShaped;
}

StatusOr<GeneratedSchedule> generate(const GenerationRequest& request) {
  if (!is_searched(request.schedule.name)) {
    PENSTOCK_ASSIGN_OR_RETURN(ComputeProgram program, generate(request.schedule));
    return GeneratedSchedule{std::move(program), std::nullopt};
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Problem problem, make_problem(request));
  const internal::Found found = internal::search(problem, request.search);
  return GeneratedSchedule{internal::to_program(problem, found.orders, request.schedule.name),
                           report_of(problem, found)};
}

std::vector<std::string> all_schedule_names() {
  std::vector<std::string> names = schedule_names();
  for (const char* name : {kZeroBubble, kVShaped})
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  return names;
}

}  // namespace penstock::plan
