// What a run of layers costs for every sensible choice of layers that recompute: the choices that no other beats in both
// time and bytes (Pareto front).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "plan/partition/partition.h"

namespace penstock::plan {

struct TimeAndBytes {
  int64_t time_ns = 0;
  int64_t bytes = 0;
};

using Front = std::vector<TimeAndBytes>;  // ascending in time, descending in bytes; never empty

// Beyond so many points every second one goes, and the answer may not be the best any more.
constexpr size_t kFrontPointsMax = 256;

// What a layer costs on a stage: one choice, or two.
Front layer_front(const LayerCost& layer, int in_flight);

// All sums of a choice of each. `thinned` becomes true when points had to go.
Front sum_of(const Front& first, const Front& second, bool& thinned);

// The fastest pair of choices within `bytes_max`; without one, nothing fits: time_ns is -1.
TimeAndBytes fastest_within(const Front& first, const Front& second, int64_t bytes_max);

// Fronts of runs of layers by stage, kept while there is room.
class FrontTable {
 public:
  explicit FrontTable(const PartitionRequest& request) : request_(request) {}

  // Valid until the next call of of().
  const Front& of(int stage, int begin, int end);
  // The sums of a front and a run's.
  Front with_run(Front before, int stage, int begin, int end);
  bool thinned() const { return thinned_; }
  int64_t points_made() const { return points_made_; }

 private:
  Front with_layer(const Front& front, int stage, int layer);

  const PartitionRequest& request_;
  std::unordered_map<uint64_t, Front> kept_;
  bool thinned_ = false;
  int64_t points_made_ = 0;
};

}  // namespace penstock::plan
