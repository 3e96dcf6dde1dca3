// A job that is known by the config of its model alone, for plans.
#pragma once

#include <string>

#include "base/status.h"
#include "client/commands/commands.h"

namespace penstock::client {

// The text of a job file of such a job: its data has no source that anybody could read. InvalidArgument names the option that
// is missing, or the key of the config that no job can have.
StatusOr<std::string> job_text_of(const ModelShapeOptions& shape);

}  // namespace penstock::client
