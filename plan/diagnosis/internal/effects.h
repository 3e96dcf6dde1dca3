// What ranks would take without fault, and which replicas and workers are slow against that. Pure.
//
// Levels are lower medians of a work over its replicas. A replica all of whose ranks are slow is taken out of them; so is one
// most of whose ranks are, where each other rank of it is seen to be slow as well once a slower one beside it is. Where most ranks
// of a work are slow, and its fastest is level with the other works, that one speaks for the work.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/diagnosis/internal/rank_times.h"

namespace penstock::plan::internal {

struct SlowRank {
  size_t work = 0;
  size_t replica = 0;
  double factor = 0;  // beyond that of its replica
};

struct Effects {
  std::vector<double> level_ms;        // [work]
  std::vector<double> error_ms;        // [work] of the level
  std::vector<double> replica_factor;  // [replica] 1: not slow as a whole
  std::vector<SlowRank> slow;          // the slowest first
};

Effects effects_of(const RankTimes& times);

// Longer by more than a tenth, and by more than chance.
bool is_longer(double ms, double error_ms, double than_ms, double than_error_ms);

}  // namespace penstock::plan::internal
