#include "plan/generation/generate.h"

#include <algorithm>
#include <map>

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

// One per stage or rank, or one for all of them.
template <typename Value>
StatusOr<std::vector<Value>> spread(const char* field, const std::vector<Value>& values, int count) {
  if (values.size() == 1) return std::vector<Value>(count, values.front());
  if (static_cast<int>(values.size()) == count) return values;
  return invalid_argument("{}: expected 1 or {}, found {}", field, count, values.size());
}

// Costs of the program's work and messages, taken from what all of them may sum up to.
class CostsLeft {
 public:
  explicit CostsLeft(int microbatches) : left_(kSumMax / microbatches) {}
  bool take(Ticks cost) { return cost >= 0 && cost <= left_ && (left_ -= cost) >= 0; }

 private:
  Ticks left_;
};

class Delays {
 public:
  explicit Delays(const SimulationCosts& costs) : costs_(costs) {
    for (const LinkOverride& link : costs.links)
      overrides_[{link.source.value, link.target.value}] = link.costs;
  }

  // Of a message over a boundary between two stages; -1: out of range.
  Ticks delay(int source, int target, int boundary) const {
    if (source == target) return 0;
    const auto found = overrides_.find({source, target});
    const LinkCosts link = found != overrides_.end()
                               ? found->second
                               : LinkCosts{costs_.latency, costs_.ticks_per_message, costs_.bandwidth};
    const int64_t bytes = costs_.message_bytes.empty() ? 0 : costs_.message_bytes[boundary];
    const Bandwidth& bandwidth = link.bandwidth;
    for (const int64_t value :
         {link.latency, link.ticks_per_message, bandwidth.bytes, bandwidth.ticks, bytes})
      if (value < 0 || value > kSumMax) return -1;
    if (bandwidth.bytes == 0) return link.latency + link.ticks_per_message;
    const auto moved = static_cast<__int128>(bytes) * bandwidth.ticks;
    const __int128 passing = (moved + bandwidth.bytes - 1) / bandwidth.bytes;
    return passing > kSumMax ? -1 : link.latency + link.ticks_per_message + static_cast<Ticks>(passing);
  }

 private:
  const SimulationCosts& costs_;
  std::map<std::pair<int, int>, LinkCosts> overrides_;
};

Status add_costs(Problem& problem, const SimulationCosts& costs) {
  PENSTOCK_ASSIGN_OR_RETURN(problem.costs, spread("costs", costs.stages, problem.stages()));
  const int boundaries = problem.stages() - 1;
  if (!costs.message_bytes.empty() && static_cast<int>(costs.message_bytes.size()) != boundaries)
    return invalid_argument("costs: message_bytes: expected {}, found {}", boundaries,
                            costs.message_bytes.size());
  const Delays delays(costs);
  CostsLeft left(problem.microbatches);
  for (int stage = 0; stage < problem.stages(); ++stage) {
    const StageCosts& cost = problem.costs[stage];
    bool fits = left.take(cost.forward) && left.take(cost.input_gradient) && left.take(cost.weight_gradient);
    if (stage < boundaries) {
      const int here = problem.rank_of(stage), next = problem.rank_of(stage + 1);
      problem.delay_up.push_back(delays.delay(here, next, stage));
      problem.delay_down.push_back(delays.delay(next, here, stage));
      fits = fits && left.take(problem.delay_up.back()) && left.take(problem.delay_down.back());
    }
    if (fits) continue;
    return invalid_argument(
        "costs: expected 0 or more, and at most {} ticks for all stages and messages of all microbatches, found "
        "more at stage {} (F {}, I {}, W {}, latency {}); fewer decimals make larger ticks",
        kSumMax, stage, cost.forward, cost.input_gradient, cost.weight_gradient, costs.latency);
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
      "memory deltas of stage {}: expected a forward that takes 1 to {}, nothing negative in between, and a sum "
      "of 0, found F {}, I {}, W {}",
      stage, kMemoryMax, deltas.forward, deltas.input_gradient, deltas.weight_gradient);
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
                  .microbatches = request.schedule.microbatches};
  PENSTOCK_RETURN_IF_ERROR(
      add_costs(problem, request.costs.value_or(uniform_costs(problem.stages(), StageCosts{}))));

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

StatusOr<GeneratedSchedule> generate(const GenerationRequest& request) {
  if (!is_searched_schedule(request.schedule.name)) {
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
