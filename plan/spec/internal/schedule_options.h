// `parallel.schedule_options`: what some schedules take beside their shape.
#pragma once

#include "plan/spec/internal/section.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Refuses, by name, an option that parallel.schedule does not take.
void read_schedule_options(Section section, ParallelSpec& parallel, Problems& problems);

}  // namespace penstock::plan
