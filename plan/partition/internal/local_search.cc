#include "plan/partition/internal/local_search.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "plan/partition/internal/merit.h"

namespace penstock::plan {
namespace {

constexpr int64_t kRanksMax = 2'000'000;  // of all splits: some tenths of a second
constexpr size_t kRanksKept = 1 << 16;

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

// Ranks by their runs: most of a split's ranks are those of a split before it.
class KnownRanks {
 public:
  struct Known {
    std::optional<RankCost> cost;
    int64_t fewest_bytes = 0;  // where it does not fit
    int64_t moved = 0;
  };

  KnownRanks(CostModel& cost, CostModel& bytes) : cost_(cost), bytes_(bytes) {}

  const Known& of(int rank, const std::vector<Run>& runs) {
    key_.assign({rank});
    for (const Run& run : runs) key_.insert(key_.end(), {run.begin, run.end});
    const auto found = known_.find(key_);
    if (found != known_.end()) return found->second;
    if (known_.size() >= kRanksKept) known_.clear();
    return known_.emplace(key_, look(rank, runs)).first->second;
  }

 private:
  struct Hash {
    size_t operator()(const std::vector<int>& key) const {
      uint64_t hash = 0xcbf29ce484222325ULL;
      for (const int number : key) hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3ULL;
      return hash;
    }
  };

  Known look(int rank, const std::vector<Run>& runs) {
    Known known;
    known.cost = cost_.rank_cost(rank, runs);
    if (!known.cost) known.fewest_bytes = bytes_.rank_cost(rank, runs)->cost;
    for (const Run& run : runs) known.moved += cost_.moved(rank, run);
    return known;
  }

  CostModel& cost_;
  CostModel& bytes_;
  std::vector<int> key_;
  std::unordered_map<std::vector<int>, Known, Hash> known_;
};

class Climb {
 public:
  Climb(CostModel& cost, CostModel& bytes) : cost_(cost), known_(cost, bytes) {
    const PartitionRequest& request = cost.request();
    stages_of_.resize(static_cast<size_t>(request.ranks));
    for (int stage = 0; stage < request.ranks * request.stages_per_rank; ++stage) {
      const int rank = rank_of_stage(request.placement, request.ranks, stage);
      stages_of_[static_cast<size_t>(rank)].push_back(stage);
    }
  }

  std::vector<int> from(const std::vector<std::vector<int>>& starts) {
    std::vector<int> boundaries = starts.front();
    score_ = score_of(boundaries);
    for (const std::vector<int>& start : starts) {
      const Score score = score_of(start);
      if (!(score < score_)) continue;
      score_ = score;
      boundaries = start;
    }
    while (!is_stopped() && step(boundaries)) {
    }
    return boundaries;
  }
  bool fits() const { return score_.over_budget == 0; }

 private:
  Score score_of(const std::vector<int>& boundaries) {
    Score score;
    for (int rank = 0; rank < cost_.request().ranks; ++rank) {
      runs_.clear();
      for (const int stage : stages_of_[static_cast<size_t>(rank)]) {
        const auto at = static_cast<size_t>(stage);
        runs_.push_back({stage, boundaries[at], boundaries[at + 1]});
      }
      const KnownRanks::Known& known = known_.of(rank, runs_);
      ++ranks_;
      if (!known.cost) {
        score.over_budget = std::max(score.over_budget, known.fewest_bytes);
        continue;
      }
      score.slowest = std::max(score.slowest, known.cost->cost);
      score.ties = score.ties.with(*known.cost, known.moved);
    }
    return score;
  }

  bool is_stopped() { return ranks_ >= kRanksMax || cost_.is_stopped(); }

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
        for (size_t last = first; last + 1 < boundaries.size() && !is_stopped(); ++last) {
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
  KnownRanks known_;
  std::vector<std::vector<int>> stages_of_;  // [rank]
  std::vector<Run> runs_;
  Score score_;
  int64_t ranks_ = 0;  // looked at
};

}  // namespace

std::optional<std::vector<int>> improve_split(CostModel& cost, CostModel& bytes,
                                              const std::vector<std::vector<int>>& starts) {
  Climb climb(cost, bytes);
  std::vector<int> boundaries = climb.from(starts);
  if (!climb.fits()) return std::nullopt;
  return boundaries;
}

}  // namespace penstock::plan
