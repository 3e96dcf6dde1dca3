// What ranks take for a microbatch, in the order of the work that they do. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "plan/diagnosis/diagnose.h"

namespace penstock::plan::internal {

using Grid = std::vector<std::vector<double>>;

struct RankTimes {
  std::vector<std::vector<int>> stages;  // [work] that its ranks hold, ascending
  std::vector<std::vector<int>> ranks;   // [work][replica]; empty where the trace tells none
  Grid ms;                               // [work][replica] sum over the rank's stages of their medians
  Grid error_ms;                         // standard error of that sum

  size_t works() const { return ms.size(); }
  size_t replicas() const { return ms[0].size(); }
  bool hold_several() const;
};

// Median of each cell's forwards + backwards.
Grid medians_of(const StageTrace& trace);

// InvalidArgument: `ranks` of another shape than `cells`, or ranks that share some stages and not all.
StatusOr<RankTimes> rank_times(const StageTrace& trace, const Grid& median_ms);

// How much microbatches vary, the slowest 2 %, one at least, left out: a machine that hiccups once is not the data.
struct Variation {
  Grid spread;                              // [stage][replica]
  double forward_backward_correlation = 0;  // over all cells, each by its median
};
Variation variation_of(const StageTrace& trace);

}  // namespace penstock::plan::internal
