// `parallel.flush_every`, and what schedules without a flush between their updates (pipedream, pipedream-2bw) ask of the
// rest of a job: nothing may make every rank wait for another in every update.
#pragma once

#include "plan/spec/internal/problems.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Whether the stages of a schedule without a flush lag behind one another: earlier ones compute with older weights.
bool versions_differ_by_stage(const std::string& schedule);

// Settles parallel.flush_every. To be called last: it reads what the sections hold and where they stand.
void settle_flushes(JobSpec& spec, Problems& problems);

}  // namespace penstock::plan
