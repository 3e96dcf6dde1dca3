// Plans of a job before it runs, from what its layers cost: plan/planning over a cost model, for one size of microbatch or for
// all that the job may choose.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/forecast/cost_model.h"
#include "plan/interop/job_profile.h"
#include "plan/planning/planner.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

struct JobPlanningOptions {
  std::vector<ScheduleChoice> among{};  // empty: the job's own schedule
  Recomputation recomputation = Recomputation::AsWritten;
  bool has_budget = true;               // false: whatever the job says
  std::vector<int64_t> budget_bytes{};  // in place of the job's; as PartitionRequest
  std::optional<int64_t> latency_ns{};  // in place of the costs'
  bool keeps_split = false;             // only the job's own split, which is then no one's to choose
  std::function<std::function<bool()>()> search{};  // PlanningRequest::start_search
  std::function<bool()> keep_going{};               // asked for all jobs together
  bool only_plans = false;                          // no baselines and no curve
};

// The job's schedule is the one that is asked; a file's, or a search's, with its program. A search is within the job's
// memory_limit and has the costs of schedule_options, where they are said. A job of a searched schedule that says no limit has
// none, unless it has a memory budget: then its search holds as much as 1f1b. Errors: the model's, and predict_bytes'.
StatusOr<PlanningRequest> planning_request(const JobSpec& job, const LayerCostModel& model,
                                           const JobPlanningOptions& options);

// A job with its plans. No plan at all is an answer; see PlanningAnswer. One that is not reached has no request.
struct PlannedJobSize {
  JobSpec job;
  PlanningRequest request;
  PlanningAnswer answer;
};

// One for each job, which differ in their microbatches alone: fastest first, those without a plan last. Those with few
// microbatches, which are planned soonest, are looked at first. InvalidArgument: several
// jobs and a model that speaks for one size.
StatusOr<std::vector<PlannedJobSize>> plan_sizes(const std::vector<JobSpec>& jobs,
                                                 const LayerCostModel& model,
                                                 const JobPlanningOptions& options);

}  // namespace penstock::plan
