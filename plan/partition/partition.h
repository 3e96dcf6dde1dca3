// Cuts a chain of layers into the contiguous stages of a pipeline so that the slowest rank is as fast as it can be.
//
//   minimise   max over ranks of  (time of the rank's layers) / (speed of the rank)
//   within     static bytes + in-flight count x activation bytes <= budget of the rank, on every rank
//
// and, where layers may recompute their activations, over the choice of layers that do. One stage a rank is solved
// exactly by dynamic programming over prefixes, two a rank (both placements) by walking both halves at once; more
// stages a rank by local search from a balanced start. Times are whole nanoseconds and bytes whole, so that
// every machine gives the same answer.
//
// Ties, which are the rule where blocks are equal, are broken by: least moved from the current placement (static bytes,
// and one for every layer), lowest peak of a rank, and the evenest times (least sum of squares). What a simulation
// would say between splits that tie even then is the planner's business.
//
// Under a budget each rank recomputes what costs it the least time to fit, and no more.
//
// A search ends after a fixed amount of work, about a second's, or when the request's keep_going says no: what was found by
// then, or by local search in as much work again, is the answer, which says that it need not be the best one
// (Partition::exact).
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace penstock::plan {

struct LayerOption {
  int64_t time_ns = 0;           // forward and backward of one microbatch, at speed 1
  int64_t activation_bytes = 0;  // for each microbatch in flight
  int64_t static_bytes = 0;      // whatever is in flight
};

struct LayerCost {
  std::string name;
  LayerOption keep;                      // activations are kept for the backward
  std::optional<LayerOption> recompute;  // and when they are computed again there
};

// Where a rank's stages stand: loop: stage s on rank s mod P. V (two a rank): s, and 2P-1-s from s = P on.
enum class StagePlacement : uint8_t { Loop, V };

constexpr int kLayersMax = 8'192;
constexpr int kTwoStageLayersMax =
    160;  // of two stages a rank; beyond, they are searched for as more stages are
constexpr int kRecomputeLayersMax = 512;  // where layers may recompute
constexpr int kSpeedUnit = 1'000'000;

struct PartitionRequest {
  std::vector<LayerCost> layers;  // 1 to kLayersMax, at least one a stage
  int ranks = 1;
  int stages_per_rank = 1;
  StagePlacement placement = StagePlacement::Loop;
  // Activations that a stage holds at once: H_s of the schedule (high_water_per_stage), min(m, P-s) for 1f1b.
  std::vector<int> in_flight;
  // In millionths; a rank of 800,000 takes 1.25 times as long. Empty: all 1,000,000. From 10,000 to 100,000,000.
  std::vector<int64_t> rank_speed;
  std::vector<int64_t> budget_bytes;  // one of every rank, or one a rank; empty: any; below 0: none fits
  std::vector<int> current_rank;      // of each layer, for the tie-break; empty: nothing is placed yet
  bool allow_empty_stages = false;    // Megatron's layouts may have them, a job's split may not
  std::function<bool()> keep_going;   // empty: yes
};

struct Partition {
  std::vector<int> boundaries;      // stages + 1: stage s holds the layers from boundaries[s] up to [s + 1]
  std::vector<int64_t> stage_ns;    // at the speed of its rank
  std::vector<int64_t> rank_ns;     // sum of its stages
  std::vector<int64_t> rank_bytes;  // peak
  std::vector<int> recomputed;      // layers, ascending
  int64_t slowest_ns = 0;           // the largest of rank_ns
  int64_t peak_bytes = 0;           // the largest of rank_bytes
  int moved_layers = 0;             // from the current placement
  bool exact = true;                // no split within the budget is faster
};

// A layer that alone takes longer than a stage would if the work were spread evenly.
struct OversizedLayer {
  int layer = 0;
  int64_t time_ns = 0;   // on the fastest rank
  int64_t ideal_ns = 0;  // all work by the sum of speeds
  double above_percent() const;
};

struct PartitionAnswer {
  bool feasible = true;
  Partition plan;                           // when not feasible: smallest_peak_partition
  std::optional<int64_t> missing_bytes;     // when not feasible: the least that every rank needs more
  std::optional<int64_t> smallest_budget;   // then, of one budget for all: the smallest that works
  std::optional<OversizedLayer> oversized;  // then partitioning cannot help beyond it
};

// InvalidArgument names the field: counts that do not fit each other, negative or enormous costs.
StatusOr<PartitionAnswer> partition(const PartitionRequest& request);

// The split with the smallest peak of a rank, whatever time it takes: its peak is the smallest budget that works. Where ranks
// have budgets of their own: the split that exceeds them by the least.
StatusOr<Partition> smallest_peak_partition(const PartitionRequest& request);

// What a given split costs, recomputing as above; FailedPrecondition names the rank that does not fit.
StatusOr<Partition> evaluate_partition(const PartitionRequest& request, const std::vector<int>& boundaries);

// What memory buys: splits that no other of the same or a lower peak beats in time, fastest first, from the request's
// budget down. At most `points_max`; empty when nothing fits. The current placement plays no part.
StatusOr<std::vector<Partition>> time_memory_curve(const PartitionRequest& request, int points_max);

// The split whose slowest stage is the fastest, whatever else its rank has to do, where nothing recomputes and memory is no matter.
// The request is one that partition() takes.
std::vector<int> balanced_stages(const PartitionRequest& request);

// Boundaries with equal counts of layers, the remainder in the middle stages: what one does without costs.
std::vector<int> equal_counts(int layers, int stages);

int rank_of_stage(StagePlacement placement, int ranks, int stage);

// In bytes; the largest number where any fit.
int64_t budget_of_rank(const PartitionRequest& request, int rank);

}  // namespace penstock::plan
