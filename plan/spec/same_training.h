// Whether a job that goes on with another file is still the same training.
#pragma once

#include <string>

#include "base/status.h"

namespace penstock::plan {

// The split, the schedule, the number of ranks and everything else may differ: no bit depends on it. InvalidArgument
// names the first difference under model, data or train, with its line in `after`. Values are compared as they are
// written: 1e-3 is not 0.001. Both are texts that parse_job_spec reads.
Status check_same_training(const std::string& before, const std::string& after);

}  // namespace penstock::plan
