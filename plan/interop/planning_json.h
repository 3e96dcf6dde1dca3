// A plan as JSON, and a partition as the split of a job.
#pragma once

#include <string>

#include "plan/planning/planner.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The items of every stage. `boundaries` are over model_items.
Split split_of(const ModelSpec& model, const std::vector<int>& boundaries);

// {"plans": [{"schedule", "stages_per_rank", "placement", "step_ms", "bubble_fraction", "peak_bytes" (per rank), "rank_ms",
//  "slowest_ms", "limit", "split" (items), "recomputed" (items), "exact"}, ...], "baselines": {"uniform": {...} or
//  {"refused": why}}, "curve": [{"peak_bytes", "step_ms", "slowest_ms"}], "left_out": [{"schedule", "stages_per_rank",
//  "reason"}], "oversized": {...}?, "smallest_budget_bytes"?}
std::string planning_to_json(const ModelSpec& model, const PlanningRequest& request,
                             const PlanningAnswer& answer);

}  // namespace penstock::plan
