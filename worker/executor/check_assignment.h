// What an executor checks of its assignment before it allocates anything: it trusts neither the wire nor the
// coordinator that verified the same before.
#pragma once

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::worker {

// The job, parsed again. InvalidArgument: the job file, its split and the program do not fit together, or the
// program breaks a rule; the message names the field or the rule, rank, position and action.
StatusOr<plan::JobSpec> check_assignment(const Assignment& assignment);

}  // namespace penstock::worker
