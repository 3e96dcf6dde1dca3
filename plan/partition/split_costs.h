// What the stages of many splits of one request cost: as evaluate_partition says of each, but checked once, in time that grows
// with the stages alone. Where layers recompute, what was chosen for a rank is kept.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plan/partition/partition.h"

namespace penstock::plan {

class SplitCosts {
 public:
  // `request` must outlive it, and be one that partition() takes.
  explicit SplitCosts(const PartitionRequest& request);

  // Partition::stage_ns of a split with `stages + 1` ascending boundaries, until the next call; nullptr when a rank does not fit.
  const std::vector<int64_t>* stage_times(const std::vector<int>& boundaries);

 private:
  struct RunsHash {
    size_t operator()(const std::vector<int>& runs) const;
  };
  using StageTimes = std::optional<std::vector<int64_t>>;  // of one rank; none: it does not fit

  bool add_plain(const std::vector<int>& boundaries, int rank);
  bool add_chosen(const std::vector<int>& boundaries, int rank);
  const StageTimes& chosen(const std::vector<int>& boundaries, int rank);
  StageTimes choose(const std::vector<int>& boundaries, int rank) const;

  const PartitionRequest& request_;
  bool recomputes_ = false;
  std::vector<std::vector<int>> stages_of_;             // [rank]
  std::vector<int64_t> times_, activations_, statics_;  // sums of the first layers
  std::vector<int64_t> stage_ns_;
  std::vector<int> key_;
  std::unordered_map<std::vector<int>, StageTimes, RunsHash>
      kept_;  // by rank and the boundaries of its stages
};

}  // namespace penstock::plan
