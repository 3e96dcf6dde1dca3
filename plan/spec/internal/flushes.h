// `parallel.flush_every`, and what schedules without a flush between their updates (pipedream, pipedream-2bw) ask of the
// rest of a job: nothing may make every rank wait for another in every update.
#pragma once

#include "plan/spec/internal/problems.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Settles parallel.flush_every. To be called last: it reads what the sections hold and where they stand.
// Whether the schedule of this name does not drain the pipeline between updates.
bool runs_without_flush(const std::string& schedule);

void settle_flushes(JobSpec& spec, Problems& problems);

}  // namespace penstock::plan
