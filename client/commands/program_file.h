// A schedule that comes in a file: for `verify` and for the schedule name "file:PATH".
#pragma once

#include <string>

#include "base/status.h"
#include "plan/schedule/program.h"

namespace penstock::client {

// NotFound when it cannot be opened; InvalidArgument, with the path and the place, when it is no program. A
// file of comma-separated values is refused by name: those formats are not built yet.
StatusOr<plan::ComputeProgram> read_program_file(const std::string& path);

}  // namespace penstock::client
