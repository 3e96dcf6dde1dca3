#include "plan/diagnosis/internal/rank_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "plan/diagnosis/statistics.h"

namespace penstock::plan::internal {
namespace {

constexpr size_t kOutlierOneOf = 50;
constexpr double kHealthyVariation = 0.03;  // of microbatches

std::vector<double> totals_of(const CellSamples& cell) {
  std::vector<double> totals;
  totals.reserve(cell.forward_ms.size());
  for (size_t i = 0; i < cell.forward_ms.size(); ++i)
    totals.push_back(cell.forward_ms[i] + cell.backward_ms[i]);
  return totals;
}

double deviation_of(const std::vector<double>& values) {
  return (quantile(values, 0.9) - quantile(values, 0.1)) / 2.56;  // a normal's standard deviation
}

// Of the median: half of the distance between the samples that are half of sqrt(n) from it, as the count of those below it has that
// standard deviation. Of few samples those may be close by chance: not less than of a normal distribution as wide, or as wide
// as that of healthy machines.
double median_error(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  const double root = std::sqrt(static_cast<double>(values.size()));
  const double low = std::max(0.0, std::floor((0.5 - 0.5 / root) * last));
  const double high = std::min(last, std::ceil((0.5 + 0.5 / root) * last));
  const double apart = values[static_cast<size_t>(high)] - values[static_cast<size_t>(low)];
  const double deviation = std::max(deviation_of(values), kHealthyVariation * median(values));
  return std::max(apart / 2, 1.25 * deviation / root);
}

CellSamples without_outliers(const CellSamples& cell) {
  const size_t count = cell.forward_ms.size();
  if (count < 3) return cell;
  const std::vector<double> totals = totals_of(cell);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return totals[a] < totals[b]; });
  order.resize(count - std::max<size_t>(1, count / kOutlierOneOf));
  CellSamples kept;
  for (const size_t i : order) {
    kept.forward_ms.push_back(cell.forward_ms[i]);
    kept.backward_ms.push_back(cell.backward_ms[i]);
  }
  return kept;
}

double spread_of(const std::vector<double>& totals) {
  const double middle = median(totals);
  return std::max(deviation_of(totals), mean(totals) - middle) / middle;
}

void add_relative(const std::vector<double>& values, std::vector<double>& target) {
  const double middle = median(values);
  for (const double value : values) target.push_back(value / middle);
}

// --- ranks.

struct Cell {
  size_t stage = 0;
  size_t replica = 0;
};

using CellsByRank = std::map<int, std::vector<Cell>>;                // of a rank by stage
using RanksByStages = std::map<std::vector<int>, std::vector<int>>;  // ascending

StatusOr<CellsByRank> cells_by_rank(const StageTrace& trace) {
  CellsByRank cells;
  if (trace.ranks.size() != trace.cells.size())
    return invalid_argument("ranks: expected those of {} stages, found {}", trace.cells.size(),
                            trace.ranks.size());
  for (size_t stage = 0; stage < trace.ranks.size(); ++stage) {
    const std::vector<int>& ranks = trace.ranks[stage];
    if (ranks.size() != trace.cells[stage].size())
      return invalid_argument("stage {}: expected {} ranks, found {}", stage, trace.cells[stage].size(),
                              ranks.size());
    if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end())
      return invalid_argument("stage {}: expected ranks that ascend", stage);
    for (size_t replica = 0; replica < ranks.size(); ++replica)
      cells[ranks[replica]].push_back({stage, replica});
  }
  return cells;
}

StatusOr<RanksByStages> ranks_by_stages(const CellsByRank& cells, size_t replicas) {
  RanksByStages works;
  for (const auto& [rank, of_rank] : cells) {
    std::vector<int> stages;
    for (const Cell& cell : of_rank) stages.push_back(static_cast<int>(cell.stage));
    works[std::move(stages)].push_back(rank);
  }
  for (const auto& [stages, ranks] : works) {
    if (ranks.size() != replicas)
      return invalid_argument(
          "stage {}: expected {} ranks with the same stages, found {}; ranks that share one stage share all",
          stages[0], replicas, ranks.size());
  }
  return works;
}

}  // namespace

bool RankTimes::hold_several() const {
  return std::any_of(stages.begin(), stages.end(), [](const auto& of_rank) { return of_rank.size() > 1; });
}

Grid medians_of(const StageTrace& trace) {
  Grid medians;
  for (const auto& stage : trace.cells) {
    std::vector<double>& row = medians.emplace_back();
    for (const CellSamples& cell : stage) row.push_back(median(totals_of(cell)));
  }
  return medians;
}

StatusOr<RankTimes> rank_times(const StageTrace& trace, const Grid& median_ms) {
  Grid errors;
  for (const auto& stage : trace.cells) {
    std::vector<double>& row = errors.emplace_back();
    for (const CellSamples& cell : stage) row.push_back(median_error(totals_of(cell)));
  }
  RankTimes times;
  if (trace.ranks.empty()) {
    for (size_t stage = 0; stage < median_ms.size(); ++stage)
      times.stages.push_back({static_cast<int>(stage)});
    times.ms = median_ms;
    times.error_ms = std::move(errors);
    return times;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const CellsByRank cells, cells_by_rank(trace));
  PENSTOCK_ASSIGN_OR_RETURN(RanksByStages works, ranks_by_stages(cells, median_ms[0].size()));
  for (auto& [stages, ranks] : works) {
    std::vector<double> sums, sum_errors;
    for (const int rank : ranks) {
      double sum = 0, square = 0;
      for (const Cell& cell : cells.at(rank)) {
        sum += median_ms[cell.stage][cell.replica];
        square += errors[cell.stage][cell.replica] * errors[cell.stage][cell.replica];
      }
      sums.push_back(sum);
      sum_errors.push_back(std::sqrt(square));
    }
    times.stages.push_back(stages);
    times.ranks.push_back(std::move(ranks));
    times.ms.push_back(std::move(sums));
    times.error_ms.push_back(std::move(sum_errors));
  }
  return times;
}

Variation variation_of(const StageTrace& trace) {
  Variation variation;
  std::vector<double> forwards, backwards;
  for (const auto& stage : trace.cells) {
    std::vector<double>& spreads = variation.spread.emplace_back();
    for (const CellSamples& cell : stage) {
      const CellSamples kept = without_outliers(cell);
      spreads.push_back(spread_of(totals_of(kept)));
      add_relative(kept.forward_ms, forwards);
      add_relative(kept.backward_ms, backwards);
    }
  }
  variation.forward_backward_correlation = correlation(forwards, backwards);
  return variation;
}

}  // namespace penstock::plan::internal
