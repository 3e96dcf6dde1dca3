// Whether it is a worker that is slow, not its layers: what single layers took in traced steps tells the two apart, since blocks
// of one type do the same work wherever they stand. Stage totals of one pipeline cannot.
//
// Blocks with experts do not count: what they take goes by the rows that come to them. Neither do embedding and head, which
// stand once. Blocks differ by 10 % between stages, by what else passes through the cache of their rank (measured: two ranks
// of one host), and a busy machine delays single ones: a worker is slow when even the least of kStepsLeast steps is
// kSlowWorker times what others take as a rule.
// Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "plan/rebalancing/measured_run.h"

namespace penstock::plan {

inline constexpr double kSlowWorker = 1.25;
inline constexpr int64_t kStepsLeast = 4;

struct SlowWorkerOfStage {
  int stage = 0;
  std::vector<int> ranks;  // in the job, that hold it
  LayerType type = LayerType::Block;
  double ms = 0;         // forward and backward of one such layer
  double others_ms = 0;  // lower median of the other stages that have one
  double factor() const { return ms / others_ms; }
};

// Whether layers that do the same work were sampled on two stages at least, often enough.
bool layers_tell_workers(const MeasuredRun& run);

// The slowest one, by its slowest type; nothing where none is, or nothing was sampled.
std::optional<SlowWorkerOfStage> slow_worker(const MeasuredRun& run);

// "rank 3 takes 1.52 times as long for a block as other ranks (4.9 ms against 3.2 ms): its worker is slow, not its layers".
std::string to_string(const SlowWorkerOfStage& worker);

}  // namespace penstock::plan
