// A job of the service with what its ranks measured, for the commands that explain it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/connection/coordinator.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

struct MeasuredJob {
  v1::Job job;
  plan::JobSpec spec;
  v1::MeasurementsResponse measurements;
  std::vector<plan::MeasuredRun> runs;  // [attempt of measurements], oldest first
};

// Says which attempts are left out, and why. NotFound: no such job, or nothing is measured yet. FailedPrecondition: nothing that
// one could plan by.
StatusOr<MeasuredJob> measured_job(Coordinator& coordinator, const std::string& name);

}  // namespace penstock::client
