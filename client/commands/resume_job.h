// Resumes a paused job, and waits for ranks that are still stopping.
#pragma once

#include <string>

#include "base/status.h"
#include "client/connection/coordinator.h"

namespace penstock::client {

// `yaml`: the file to go on with; "": as it was. Tries for a minute while its ranks are stopping.
StatusOr<v1::JobState> resume_when_stopped(Coordinator& coordinator, const std::string& name,
                                           const std::string& yaml);

}  // namespace penstock::client
