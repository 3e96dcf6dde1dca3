// How good the beginning of a split is: the two questions that the searches answer, one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "plan/partition/internal/cost_model.h"

namespace penstock::plan {

// The slowest rank so far.
struct Slowest {
  int64_t cost = 0;

  Slowest with(const RankCost& rank, int64_t) const { return {std::max(cost, rank.cost)}; }
  bool cannot_gain(const RankCost& rank) const { return rank.cost >= cost; }
  bool operator<(const Slowest& other) const { return cost < other.cost; }
};

// Among splits whose slowest rank is equal. Sums and maxima keep their order when the same is added to both sides, so
// that the best beginning stays the best one; only where a later peak hides a smaller one may the squares be missed.
struct TieBreak {
  int64_t moved = 0;
  int64_t peak = 0;
  unsigned __int128 squares = 0;

  TieBreak with(const RankCost& rank, int64_t moved_here) const {
    const auto time = static_cast<unsigned __int128>(rank.time_ns);
    return {moved + moved_here, std::max(peak, rank.bytes), squares + time * time};
  }
  bool cannot_gain(const RankCost&) const { return false; }
  bool operator<(const TieBreak& other) const {
    return std::tie(moved, peak, squares) < std::tie(other.moved, other.peak, other.squares);
  }
};

}  // namespace penstock::plan
