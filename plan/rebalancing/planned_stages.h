// What the stages of a job's newest run should have taken, for people who look at what they took. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The first of these that there is.
enum class PlannedBy : uint8_t {
  DeviceCosts,    // of emulated devices, by layer
  EarlierSplits,  // the costs that this job's runs of other splits gave
  Submission,     // what was planned for this very split when the job was submitted: stages_note()
  Mean,           // of the stages themselves: nothing was planned
};

struct PlannedStages {
  std::vector<double> ms;  // [stage] forward and backward of a microbatch
  PlannedBy by = PlannedBy::Mean;
};
PlannedStages planned_stages(const JobSpec& job, const std::vector<MeasuredRun>& runs);

// "planned stages: 39.5 ms of embedding 0-3 | 41 ms of 4-7 head": what a job file says in a comment once it was planned. `ms`: of
// each stage.
std::string stages_note(const Split& split, const std::vector<double>& ms);

}  // namespace penstock::plan
