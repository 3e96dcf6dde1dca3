#include "plan/partition/partition.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "plan/partition/internal/cost_model.h"
#include "plan/partition/internal/local_search.h"
#include "plan/partition/internal/merit.h"
#include "plan/partition/internal/one_stage.h"
#include "plan/partition/internal/rank_choice.h"
#include "plan/partition/internal/two_stages.h"

namespace penstock::plan {
namespace {

constexpr int64_t kTimeMax = int64_t{1} << 44;   // of a layer: 4.9 hours
constexpr int64_t kBytesMax = int64_t{1} << 61;  // of all layers, every one with the most in flight
constexpr int64_t kDebtMax = int64_t{1} << 50;   // of a budget below 0
constexpr int kRanksMax = 4'096;
constexpr int kInFlightMax = 65'536;

int stages_of(const PartitionRequest& request) {
  return request.ranks * request.stages_per_rank;
}
int layers_of(const PartitionRequest& request) {
  return static_cast<int>(request.layers.size());
}

// --- what is asked.

Status check_shape(const PartitionRequest& request) {
  if (request.ranks < 1 || request.ranks > kRanksMax) {
    return invalid_argument("ranks: expected 1 to {}, found {}", kRanksMax, request.ranks);
  }
  if (request.stages_per_rank < 1 || request.stages_per_rank > kLayersMax) {
    return invalid_argument("stages per rank: expected 1 to {}, found {}", kLayersMax,
                            request.stages_per_rank);
  }
  if (request.placement == StagePlacement::V && request.stages_per_rank != 2) {
    return invalid_argument("placement: v puts two stages on a rank, found {}", request.stages_per_rank);
  }
  const size_t layers = request.layers.size();
  if (layers < 1 || layers > kLayersMax)
    return invalid_argument("layers: expected 1 to {}, found {}", kLayersMax, layers);
  const int64_t stages = int64_t{request.ranks} * request.stages_per_rank;
  if (stages > kLayersMax || (!request.allow_empty_stages && stages > static_cast<int64_t>(layers))) {
    return invalid_argument("layers: expected at least one for each of {} stages, found {}", stages, layers);
  }
  return ok_status();
}

Status check_lists(const PartitionRequest& request) {
  if (request.in_flight.size() != static_cast<size_t>(stages_of(request))) {
    return invalid_argument("in-flight counts: expected {}, one a stage, found {}", stages_of(request),
                            request.in_flight.size());
  }
  for (const int count : request.in_flight) {
    if (count < 0 || count > kInFlightMax) {
      return invalid_argument("in-flight counts: expected 0 to {}, found {}", kInFlightMax, count);
    }
  }
  if (!request.rank_speed.empty() && request.rank_speed.size() != static_cast<size_t>(request.ranks)) {
    return invalid_argument("worker_speed: expected {} entries, one a rank, found {}", request.ranks,
                            request.rank_speed.size());
  }
  for (const int64_t speed : request.rank_speed) {
    if (speed < kSpeedUnit / 100 || speed > int64_t{kSpeedUnit} * 100) {
      return invalid_argument("worker_speed: expected 0.01 to 100, found {}",
                              static_cast<double>(speed) / kSpeedUnit);
    }
  }
  if (!request.current_rank.empty() && request.current_rank.size() != request.layers.size()) {
    return invalid_argument("current placement: expected {} entries, one a layer, found {}",
                            request.layers.size(), request.current_rank.size());
  }
  if (request.budget_bytes.size() > 1 && request.budget_bytes.size() != static_cast<size_t>(request.ranks)) {
    return invalid_argument("memory budget: expected one for all ranks, or {}, one a rank; found {}",
                            request.ranks, request.budget_bytes.size());
  }
  for (const int64_t budget : request.budget_bytes) {
    if (budget < -kDebtMax)
      return invalid_argument("memory budget: expected at least {} bytes, found {}", -kDebtMax, budget);
  }
  return ok_status();
}

Status check_option(const LayerOption& option, const std::string& field) {
  if (option.time_ns < 0 || option.time_ns > kTimeMax) {
    return invalid_argument("{}: expected a time of 0 to {} ns, found {}", field, kTimeMax, option.time_ns);
  }
  for (const int64_t bytes : {option.activation_bytes, option.static_bytes}) {
    if (bytes < 0 || bytes > kBytesMax) {
      return invalid_argument("{}: expected 0 to {} bytes, found {}", field, kBytesMax, bytes);
    }
  }
  return ok_status();
}

Status check_costs(const PartitionRequest& request) {
  const int most = *std::max_element(request.in_flight.begin(), request.in_flight.end());
  __int128 sum = 0;
  bool recomputes = false;
  for (size_t layer = 0; layer < request.layers.size(); ++layer) {
    const LayerCost& cost = request.layers[layer];
    const std::string field = fmt::format("layers[{}]", layer);
    PENSTOCK_RETURN_IF_ERROR(check_option(cost.keep, field));
    sum += __int128{cost.keep.activation_bytes} * most + cost.keep.static_bytes;
    if (!cost.recompute) continue;
    recomputes = true;
    PENSTOCK_RETURN_IF_ERROR(check_option(*cost.recompute, field + ".recompute"));
    sum += __int128{cost.recompute->activation_bytes} * most + cost.recompute->static_bytes;
  }
  if (sum > kBytesMax)
    return invalid_argument("layers: all with {} microbatches in flight exceed 2^61 bytes", most);
  if (recomputes && request.layers.size() > kRecomputeLayersMax) {
    return invalid_argument("layers: expected at most {} where one may recompute, found {}",
                            kRecomputeLayersMax, request.layers.size());
  }
  return ok_status();
}

Status check(const PartitionRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check_shape(request));
  PENSTOCK_RETURN_IF_ERROR(check_lists(request));
  return check_costs(request);
}

// --- the searches.

// The limit rises until something is found: the nearer it is to the best, the less there is to look at. What is found before
// the model stops the search need not be the best.
template <template <typename> class Search>
std::optional<std::vector<int>> exact_split(CostModel& model) {
  const int64_t least = model.least_cost();
  const int64_t most = model.cost_max() - least;
  for (int64_t above = std::min(least / 32 + 1, most);; above = above < most / 4 ? 4 * above : most) {
    if (const auto slowest = Search<Slowest>(model).best_within(least + above)) {
      const auto evenest = Search<TieBreak>(model).best_within(slowest->merit.cost);
      return evenest ? evenest->boundaries : slowest->boundaries;
    }
    if (above == most || model.is_stopped()) return std::nullopt;
  }
}

std::optional<std::vector<int>> searched_split(const PartitionRequest& request, CostModel& model) {
  CostModel bytes(request, Objective::Bytes);
  return improve_split(model, bytes,
                       {balanced_stages(request), equal_counts(layers_of(request), stages_of(request))});
}

bool has_exact_search(const PartitionRequest& request) {
  return request.stages_per_rank == 1 ||
         (request.stages_per_rank == 2 && layers_of(request) <= kTwoStageLayersMax);
}

struct FoundSplit {
  std::vector<int> boundaries;
  bool exact = false;
};

std::optional<FoundSplit> best_split(const PartitionRequest& request, Objective objective) {
  if (has_exact_search(request)) {
    CostModel model(request, objective);
    std::optional<std::vector<int>> split = request.stages_per_rank == 1 ? exact_split<OneStageSearch>(model)
                                                                         : exact_split<TwoStageSearch>(model);
    const bool is_proven = !model.is_stopped();
    if (split) return FoundSplit{*std::move(split), is_proven && !model.thinned()};
    if (is_proven) return std::nullopt;
  }
  CostModel model(request, objective);
  std::optional<std::vector<int>> split = searched_split(request, model);
  if (!split) return std::nullopt;
  return FoundSplit{*std::move(split), false};
}

// --- what a split costs, layer by layer.

bool is_same(const LayerOption& a, const LayerOption& b) {
  return a.time_ns == b.time_ns && a.activation_bytes == b.activation_bytes &&
         a.static_bytes == b.static_bytes;
}

// Adds one rank to `plan`; false when it does not fit.
bool add_rank(const PartitionRequest& request, Objective objective, int rank, Partition& plan) {
  const std::vector<HeldLayer> held = layers_held_by(request, plan.boundaries, rank);
  bool thinned = false;
  const auto options = choose_options(request, held, objective, rank, thinned);
  if (!options) return false;
  int64_t time = 0, bytes = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    const LayerOption& option = (*options)[i];
    time += option.time_ns;
    bytes += option.static_bytes + option.activation_bytes * held[i].in_flight;
    plan.stage_ns[static_cast<size_t>(held[i].stage)] += option.time_ns;
    if (!is_same(option, request.layers[static_cast<size_t>(held[i].layer)].keep))
      plan.recomputed.push_back(held[i].layer);
    if (!request.current_rank.empty() && request.current_rank[static_cast<size_t>(held[i].layer)] != rank) {
      ++plan.moved_layers;
    }
  }
  const int64_t speed =
      request.rank_speed.empty() ? kSpeedUnit : request.rank_speed[static_cast<size_t>(rank)];
  plan.rank_ns.push_back(time_at_speed(time, speed));
  plan.rank_bytes.push_back(bytes);
  plan.exact = plan.exact && !thinned;
  return true;
}

StatusOr<Partition> costed(const PartitionRequest& request, std::vector<int> boundaries,
                           Objective objective) {
  Partition plan;
  plan.boundaries = std::move(boundaries);
  plan.stage_ns.assign(static_cast<size_t>(stages_of(request)), 0);
  for (int rank = 0; rank < request.ranks; ++rank) {
    if (!add_rank(request, objective, rank, plan)) {
      return failed_precondition("rank {} does not fit into {} bytes with this split", rank,
                                 budget_of_rank(request, rank));
    }
  }
  for (int stage = 0; stage < stages_of(request); ++stage) {
    if (request.rank_speed.empty()) break;
    int64_t& time = plan.stage_ns[static_cast<size_t>(stage)];
    time = time_at_speed(
        time,
        request.rank_speed[static_cast<size_t>(rank_of_stage(request.placement, request.ranks, stage))]);
  }
  std::sort(plan.recomputed.begin(), plan.recomputed.end());
  plan.slowest_ns = *std::max_element(plan.rank_ns.begin(), plan.rank_ns.end());
  plan.peak_bytes = *std::max_element(plan.rank_bytes.begin(), plan.rank_bytes.end());
  return plan;
}

std::optional<Partition> solve(const PartitionRequest& request, Objective objective) {
  std::optional<FoundSplit> split = best_split(request, objective);
  if (!split) return std::nullopt;
  StatusOr<Partition> plan = costed(request, std::move(split->boundaries), objective);
  PENSTOCK_CHECK(plan.ok(), "{}",
                 message(plan.status()));  // the choice with the fewest bytes is never left out
  plan->exact = plan->exact && split->exact;
  return *std::move(plan);
}

std::optional<OversizedLayer> oversized_layer(const PartitionRequest& request) {
  const CostModel model(request, Objective::Time);
  int64_t fastest = kSpeedUnit;
  if (!request.rank_speed.empty())
    fastest = *std::max_element(request.rank_speed.begin(), request.rank_speed.end());
  OversizedLayer largest;
  for (int layer = 0; layer < layers_of(request); ++layer) {
    const int64_t time = time_at_speed(model.floor_sum(layer, layer + 1), fastest);
    if (time > largest.time_ns) largest = {layer, time, 0};
  }
  largest.ideal_ns = model.ideal_cost();
  if (largest.time_ns <= largest.ideal_ns) return std::nullopt;
  return largest;
}

int64_t missing_bytes(const PartitionRequest& request, const Partition& plan) {
  int64_t most = 0;
  for (int rank = 0; rank < request.ranks; ++rank) {
    most = std::max(most, plan.rank_bytes[static_cast<size_t>(rank)] - budget_of_rank(request, rank));
  }
  return most;
}

}  // namespace

double OversizedLayer::above_percent() const {
  return ideal_ns == 0 ? 0 : 100.0 * static_cast<double>(time_ns - ideal_ns) / static_cast<double>(ideal_ns);
}

StatusOr<PartitionAnswer> partition(const PartitionRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check(request));
  PartitionAnswer answer;
  answer.oversized = oversized_layer(request);
  if (std::optional<Partition> plan = solve(request, Objective::Time)) {
    answer.plan = *std::move(plan);
    return answer;
  }
  PENSTOCK_ASSIGN_OR_RETURN(answer.plan, smallest_peak_partition(request));
  const int64_t missing = missing_bytes(request, answer.plan);
  if (missing <= 0) {  // it fits, though the search did not meet it
    PENSTOCK_ASSIGN_OR_RETURN(answer.plan, costed(request, answer.plan.boundaries, Objective::Time));
    answer.plan.exact = false;
    return answer;
  }
  answer.feasible = false;
  answer.missing_bytes = missing;
  if (request.budget_bytes.size() == 1) answer.smallest_budget = answer.plan.peak_bytes;
  return answer;
}

StatusOr<Partition> smallest_peak_partition(const PartitionRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check(request));
  std::optional<Partition> plan = solve(request, Objective::Bytes);
  PENSTOCK_CHECK(plan.has_value());  // without a budget there is always one
  return *std::move(plan);
}

StatusOr<Partition> evaluate_partition(const PartitionRequest& request, const std::vector<int>& boundaries) {
  PENSTOCK_RETURN_IF_ERROR(check(request));
  const bool whole = boundaries.size() == static_cast<size_t>(stages_of(request)) + 1 &&
                     boundaries.front() == 0 && boundaries.back() == layers_of(request) &&
                     std::is_sorted(boundaries.begin(), boundaries.end());
  if (!whole) {
    return invalid_argument("split: expected {} ascending boundaries from 0 to {}", stages_of(request) + 1,
                            layers_of(request));
  }
  return costed(request, boundaries, Objective::Time);
}

StatusOr<std::vector<Partition>> time_memory_curve(const PartitionRequest& request, int points_max) {
  PENSTOCK_RETURN_IF_ERROR(check(request));
  PartitionRequest tighter = request;
  tighter.current_rank.clear();
  std::vector<Partition> curve;
  while (static_cast<int>(curve.size()) < points_max) {
    std::optional<Partition> plan = solve(tighter, Objective::Time);
    if (!plan) break;
    if (!curve.empty() && plan->slowest_ns <= curve.back().slowest_ns) curve.pop_back();  // as fast with less
    curve.push_back(*std::move(plan));
    if (curve.back().peak_bytes == 0) break;
    tighter.budget_bytes.resize(static_cast<size_t>(request.ranks));
    for (int rank = 0; rank < request.ranks; ++rank) {
      tighter.budget_bytes[static_cast<size_t>(rank)] =
          std::min(budget_of_rank(request, rank), curve.back().peak_bytes - 1);
    }
  }
  return curve;
}

std::vector<int> balanced_stages(const PartitionRequest& request) {
  PartitionRequest apart = request;
  apart.ranks = stages_of(request);
  apart.stages_per_rank = 1;
  apart.placement = StagePlacement::Loop;
  apart.budget_bytes.clear();
  apart.current_rank.clear();
  apart.keep_going = nullptr;
  apart.rank_speed.clear();
  for (int stage = 0; stage < apart.ranks && !request.rank_speed.empty(); ++stage) {
    const int rank = rank_of_stage(request.placement, request.ranks, stage);
    apart.rank_speed.push_back(request.rank_speed[static_cast<size_t>(rank)]);
  }
  for (LayerCost& layer : apart.layers) layer.recompute.reset();
  CostModel model(apart, Objective::Time);
  return exact_split<OneStageSearch>(model).value_or(equal_counts(layers_of(request), stages_of(request)));
}

std::vector<int> equal_counts(int layers, int stages) {
  const int remainder = layers % stages;
  const int first = (stages - remainder) / 2;
  std::vector<int> boundaries = {0};
  for (int stage = 0; stage < stages; ++stage) {
    const bool extra = stage >= first && stage < first + remainder;
    boundaries.push_back(boundaries.back() + layers / stages + (extra ? 1 : 0));
  }
  return boundaries;
}

int rank_of_stage(StagePlacement placement, int ranks, int stage) {
  if (placement == StagePlacement::V && stage >= ranks) return 2 * ranks - 1 - stage;
  return stage % ranks;
}

int64_t budget_of_rank(const PartitionRequest& request, int rank) {
  const std::vector<int64_t>& budgets = request.budget_bytes;
  if (budgets.empty()) return std::numeric_limits<int64_t>::max();
  return budgets[budgets.size() == 1 ? 0 : static_cast<size_t>(rank)];
}

}  // namespace penstock::plan
