// Measurements of a job, as the coordinator sends them, as the values that planning takes. Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "penstock/v1/jobs.pb.h"
#include "plan/rebalancing/measured_run.h"

namespace penstock::client {

// Oldest first; the last is the newest attempt that was measured. InvalidArgument: a message that no coordinator of this version
// sends.
StatusOr<std::vector<plan::MeasuredRun>> measured_runs(const v1::MeasurementsResponse& response);

}  // namespace penstock::client
