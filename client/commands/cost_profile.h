// Where the costs come from that a job is planned by before it runs.
#pragma once

#include "base/status.h"
#include "client/commands/commands.h"
#include "plan/forecast/auto_plan.h"

namespace penstock::client {

// Reads the file, or asks the coordinator for what the jobs measured. A profile is a job where it says job:NAME, and where no
// file of that name exists. InvalidArgument names the option; NotFound: neither a file nor a job.
StatusOr<plan::CostSources> cost_sources(const CostOptions& options, const ConnectionOptions& connection);

}  // namespace penstock::client
