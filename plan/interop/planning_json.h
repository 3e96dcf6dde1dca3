// A plan as JSON, and a partition as the split of a job.
#pragma once

#include <string>
#include <vector>

#include "plan/planning/planner.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The items of every stage. `boundaries` are over model_items.
Split split_of(const ModelSpec& model, const std::vector<int>& boundaries);
// And back.
std::vector<int> boundaries_of(const Split& split);

// The best plan of one size of microbatch.
struct PlannedSize {
  int64_t microbatch_size = 0;
  PlannedStep step;
};

// What a plan was made from.
struct PlanningBasis {
  std::string costs;  // their source, in words
  double error = 0;   // part of a step that they may be wrong by
  bool is_measured = false;
  int64_t microbatch_size = 0;
  std::vector<PlannedSize> sizes;  // all that were planned, fastest first
};

// {"costs": {"source", "error_percent", "measured"}, "microbatch_size", "microbatch_sizes": [{"microbatch_size", "step_ms",
//  "schedule", "stages_per_rank", "bubble_fraction", "peak_bytes"}, ...], "plans": [{"schedule", "stages_per_rank", "placement", "step_ms", "bubble_fraction", "peak_bytes" (per rank), "rank_ms",
//  "slowest_ms", "limit", "split" (items), "recomputed" (items), "exact"}, ...], "baselines": {"uniform": {...} or
//  {"refused": why}}, "curve": [{"peak_bytes", "step_ms", "slowest_ms", "schedule", "stages_per_rank"}], "left_out":
//  [{"schedule", "stages_per_rank", "reason"}], "oversized": {...}?, "missing_bytes"?, "smallest_budget_bytes"?}
std::string planning_to_json(const ModelSpec& model, const PlanningRequest& request,
                             const PlanningAnswer& answer, const PlanningBasis& basis);

}  // namespace penstock::plan
