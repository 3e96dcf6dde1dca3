// Measurements of a job, as the coordinator sends them, as the values that planning takes. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "penstock/v1/jobs.pb.h"
#include "plan/rebalancing/measured_run.h"

namespace penstock::client {

struct MeasuredRuns {
  v1::MeasurementsResponse response;    // without the attempts that are left out
  std::vector<plan::MeasuredRun> runs;  // [attempt of response], oldest first
  std::string left_out;                 // which attempts and why, as plan::to_text(); "": none
};

// FailedPrecondition: no attempt can be planned by, with what is wrong with each.
StatusOr<MeasuredRuns> measured_runs(v1::MeasurementsResponse response);

}  // namespace penstock::client
