#include "plan/partition/internal/local_search.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "plan/partition/internal/merit.h"

namespace penstock::plan {
namespace {

// Less is better, first field first.
struct Score {
  int64_t over_budget = 0;  // the peak where it does not fit, else 0
  int64_t slowest = 0;
  TieBreak ties;

  bool operator<(const Score& other) const {
    if (over_budget != other.over_budget) return over_budget < other.over_budget;
    if (slowest != other.slowest) return slowest < other.slowest;
    // Evenness first: it is what the next steps start from.
    return std::tie(ties.squares, ties.moved, ties.peak) <
           std::tie(other.ties.squares, other.ties.moved, other.ties.peak);
  }
};

class Climb {
 public:
  Climb(CostModel& cost, CostModel& bytes) : cost_(cost), bytes_(bytes) {}

  std::vector<int> from(std::vector<int> boundaries) {
    score_ = score_of(boundaries);
    while (evaluations_ < kEvaluationsMax && step(boundaries)) {
    }
    return boundaries;
  }
  bool fits() const { return score_.over_budget == 0; }

 private:
  std::vector<Run> runs_of(const std::vector<int>& boundaries, int rank) const {
    const PartitionRequest& request = cost_.request();
    std::vector<Run> runs;
    for (int stage = 0; stage + 1 < static_cast<int>(boundaries.size()); ++stage) {
      if (rank_of_stage(request.placement, request.ranks, stage) != rank) continue;
      runs.push_back(
          {stage, boundaries[static_cast<size_t>(stage)], boundaries[static_cast<size_t>(stage) + 1]});
    }
    return runs;
  }

  Score score_of(const std::vector<int>& boundaries) {
    ++evaluations_;
    Score score;
    for (int rank = 0; rank < cost_.request().ranks; ++rank) {
      const std::vector<Run> runs = runs_of(boundaries, rank);
      const std::optional<RankCost> cost = cost_.rank_cost(rank, runs);
      if (!cost) {
        score.over_budget = std::max(score.over_budget, bytes_.rank_cost(rank, runs)->cost);
        continue;
      }
      int64_t moved = 0;
      for (const Run& run : runs) moved += cost_.moved(rank, run);
      score.slowest = std::max(score.slowest, cost->cost);
      score.ties = score.ties.with(*cost, moved);
    }
    return score;
  }

  bool is_split(const std::vector<int>& boundaries) const {
    const int least = cost_.request().allow_empty_stages ? 0 : 1;
    for (size_t i = 1; i < boundaries.size(); ++i) {
      if (boundaries[i] - boundaries[i - 1] < least) return false;
    }
    return true;
  }

  // Shifts the boundaries from `first` to `last` by one layer, for every such range and both ways; keeps the best.
  bool step(std::vector<int>& boundaries) {
    std::vector<int> best;
    for (size_t first = 1; first + 1 < boundaries.size(); ++first) {
      for (const int by : {-1, 1}) {
        std::vector<int> shifted = boundaries;
        for (size_t last = first; last + 1 < boundaries.size() && evaluations_ < kEvaluationsMax; ++last) {
          shifted[last] += by;
          if (!is_split(shifted)) continue;
          const Score score = score_of(shifted);
          if (!(score < score_)) continue;
          score_ = score;
          best = shifted;
        }
      }
    }
    if (best.empty()) return false;
    boundaries = std::move(best);
    return true;
  }

  CostModel& cost_;
  CostModel& bytes_;
  Score score_;
  int64_t evaluations_ = 0;
};

}  // namespace

std::optional<std::vector<int>> improve_split(CostModel& cost, CostModel& bytes, std::vector<int> start) {
  Climb climb(cost, bytes);
  std::vector<int> boundaries = climb.from(std::move(start));
  if (!climb.fits()) return std::nullopt;
  return boundaries;
}

}  // namespace penstock::plan
