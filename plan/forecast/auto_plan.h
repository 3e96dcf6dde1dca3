// What `schedule: auto`, `split: auto` and `microbatch_size: auto` of a job file become (plan/spec/auto_source.h).
//
//   schedule          with it V: the fastest plan of plan/planning by its simulation, over every schedule that drains the pipeline and
//                     has each stage on one rank; searched ones where schedule_options ask for a search. The split is planned with
//                     it, and what recomputes where the job has a memory budget and says nothing about recompute.
//   microbatch_size   the same for every size that the job's bounds allow
//   split             alone: the exact one for the job's schedule. Where the costs are no measurements it stays equal counts
//                     unless the gain exceeds the model's error.
// Where bits depend on the split, which are those of pipedream, costs that are no measurements leave it at equal counts.
// Of plans within 1 % of the fastest, which no simulation tells apart, the one with fewer stages a rank and then least memory is
// taken. A plan must fit the memory budget as training counts it, and the job file with it be one that is accepted.
// Otherwise no bit of a job's losses depends on split and recompute.
//
// A searched schedule is written with the program that was planned. Its search is within memory_limit; the sizes' and
// schedules' searches share search_seconds out.
//
// Pure; any thread. Programs of more than kPlannedWorksMax forwards are not planned. After kPlanningSeconds the best plan so far
// is taken, and a note says what was not looked at. What is under way then is finished, and where nothing fits so far a first
// schedule and 1f1b are still looked at for every size.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/forecast/cost_model.h"

namespace penstock::plan {

constexpr int64_t kPlannedWorksMax = int64_t{1} << 20;
constexpr double kPlanningSeconds = 10;  // beside those of searches

// From now on: says yes for so many seconds. An empty one: planning takes as long as it takes, and a search makes a fixed number
// of tries.
using StartTimer = std::function<std::function<bool()>(double seconds)>;

struct AutoPlan {
  std::string yaml;  // with the fields written
  // What was chosen, and why; none: nothing was. Where costs are times, what its stages should take (rebalancing/planned_stages.h),
  // of up to 256.
  std::vector<std::string> notes;
};

// Whose costs are taken: `profile`, else those of the job's emulated device, else rates.
struct CostSources {
  std::optional<LayerCostModel> profile;
  DeviceRates rates;
};

// InvalidArgument: an emulated device's costs by stage, which follow no plan.
StatusOr<LayerCostModel> cost_model_for(const JobSpec& job, const CostSources& sources);

// Writes schedule and microbatch_size, with them the split where it is auto too; leaves `yaml` as it is where neither is auto.
// InvalidArgument: what parse_job_spec says of the rest; costs that do not speak for this job; a size for a schedule with
// stages on two ranks. FailedPrecondition: no plan fits, with the smallest budget that works.
StatusOr<AutoPlan> plan_schedule_and_sizes(const std::string& yaml, const CostSources& sources,
                                           const StartTimer& start_timer = {});

// For a job that goes on: writes what it was planned to be, as `running` says, in place of `auto`: its size of microbatch, and
// where as many ranks make a pipeline its schedule, with stages a rank, split and blocks that recompute. What is still auto
// then is left to the others. Errors as above.
StatusOr<AutoPlan> keep_plan(const std::string& yaml, const JobSpec& running);

// Writes the split where it is auto and another one is better. The text's schedule is known, a searched one with its program.
StatusOr<AutoPlan> plan_split(const std::string& yaml, const CostSources& sources,
                              const StartTimer& start_timer = {});

}  // namespace penstock::plan
