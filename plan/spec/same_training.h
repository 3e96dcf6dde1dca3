// Whether a job that goes on with another file is still the same training.
#pragma once

#include <string>

#include "base/status.h"

namespace penstock::plan {

// The split, the schedule, the ranks of a pipeline and everything else may differ: no bit depends on it. The number of
// pipelines side by side stays, which says how gradients are added up. Of schedules without a flush weight versions follow
// from ranks and flush_every: to them, from them and between them these stay. InvalidArgument names the first difference
// under model, data or train, or in parallel.expert or data, the kind of device, the folder of checkpoints or what such a
// schedule keeps, with its line in `after`. Values are compared as they are written: 1e-3 is not 0.001. Both are texts that
// parse_job_spec reads.
Status check_same_training(const std::string& before, const std::string& after);

}  // namespace penstock::plan
