// Whether a job that goes on with another file is still the same training.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The split, the schedule, the number of ranks and everything else may differ: no bit depends on it, but for what
// other_sums() tells. Of schedules without a flush weight versions follow from the ranks of a pipeline and flush_every: to
// them, from them and between them these stay. InvalidArgument names the first difference under model, data or train, or in
// the kind of device, the folder of checkpoints or what such a schedule keeps, with its line in `after`. Values are compared
// as they are written: 1e-3 is not 0.001. Both are texts that parse_job_spec reads.
Status check_same_training(const std::string& before, const std::string& after);

// What of the file changes the order in which gradients and losses are summed, so that what follows is the same training
// with other last digits: "parallel.expert 2 in place of 1, two_batch_overlap"; "" for nothing.
std::string other_sums(const JobSpec& before, const JobSpec& after);

}  // namespace penstock::plan
