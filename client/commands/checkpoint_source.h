// The folder that is meant by JOB|DIR.
#pragma once

#include <string>

#include "base/status.h"
#include "client/commands/commands.h"

namespace penstock::client {

// A folder of that name, else the final weights of the job of that name, else its newest checkpoint, which the
// coordinator tells. NotFound: neither; FailedPrecondition: the job has none, with its state.
StatusOr<std::string> checkpoint_folder(const std::string& source, const ConnectionOptions& connection);

}  // namespace penstock::client
