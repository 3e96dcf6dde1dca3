// A job's splits by costs that were fitted to its runs: what plan/planning is asked about them, and what its simulation says of
// one. Pure; any thread.
#pragma once

#include <vector>

#include "base/status.h"
#include "plan/planning/planner.h"
#include "plan/rebalancing/layer_fit.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Errors as fit_layers() has them.
StatusOr<LayerFit> fit_runs(const JobSpec& job, const std::vector<MeasuredRun>& runs);

// Forward and backward of a microbatch; 0: `times` does not know a type of these items.
double stage_ms(const JobSpec& job, const FittedTimes& times, const std::vector<Item>& items);

// The job's own schedule and program, within its budget, which counts all kinds of bytes that a rank may hold. What the optimizer
// took is that of `run`.
StatusOr<PlanningRequest> split_request(const JobSpec& job, const FittedTimes& times, const MeasuredRun& run);

// A step with this split, whether it fits the budget or not.
StatusOr<double> simulated_seconds(PlanningRequest request, const Split& split);

}  // namespace penstock::plan
