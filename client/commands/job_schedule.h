// The search for a job's zb-auto or v-auto, which whoever submits makes: the daemons get its program.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/schedule/program.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

struct SearchedSchedule {
  plan::ComputeProgram program;
  std::string found;  // a line for people: the span that was found, and how far from the best it can be
};

// Searches for spec.parallel.schedule, which is a searched one, for up to its search_seconds. InvalidArgument names
// the option: a memory limit that not even one microbatch fits in.
StatusOr<SearchedSchedule> search_schedule(const plan::JobSpec& spec);

}  // namespace penstock::client
