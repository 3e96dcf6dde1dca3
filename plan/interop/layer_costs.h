// Costs of layers as a file says them, and the split that was found for them as JSON.
//
//   {"layers": [{"name": "block.0", "time_ms": 8.2, "activation_bytes": 1e8, "static_bytes": 2e9,
//                "recompute": {"time_ms": 11, "activation_bytes": 1e7, "static_bytes": 2e9}}, ...],
//    "worker_speed": [1, 0.8, ...]}
// time_ms is forward and backward of one microbatch; forward_ms beside it says what of it is the forward (a third where
// nothing does). Bytes are 0 where they are missing, and recompute's static_bytes those of the layer. Times are rounded
// to nanoseconds.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/partition/partition.h"

namespace penstock::plan {

struct LayerCosts {
  std::vector<LayerCost> layers;
  std::vector<int64_t> forward_ns;            // of each layer's keep.time_ns
  std::vector<int64_t> update_ns;             // of each layer, of the optimizer in a step; empty: not known
  std::vector<int64_t> split_backward_bytes;  // of each layer, where they are known: plan/planning
  int64_t rank_bytes = 0;                     // that every rank holds, whatever its layers
  std::vector<int64_t> rank_speed;            // in millionths; empty: all the same
};

// InvalidArgument: "PATH: layers[3].time_ms: ...".
StatusOr<LayerCosts> layer_costs_from_json(const std::string& text, const std::string& path);

// {"feasible": true, "split": [0, 5, ...], "stage_ms": [...], "rank_ms", "slowest_ms", "peak_bytes" (per rank),
//  "recomputed" (layers per stage), "recomputed_layers" (their names), "moved_layers", "exact", "oversized"}.
// With several stages a rank "chunks" in place of split: [begin, end) of every stage in model order, with "placement".
// Where nothing fits: {"feasible": false, "missing_bytes": N, "smallest_budget_bytes": N (of one for all), ...} and the split
// of that budget.
std::string partition_to_json(const PartitionRequest& request, const PartitionAnswer& answer);

}  // namespace penstock::plan
