// Follows a job to its end and shows its progress.
#pragma once

#include <cstdio>
#include <string>

#include "base/status.h"
#include "client/connection/coordinator.h"

namespace penstock::client {

// Draws on `stream` (see ProgressPrinter). Returns the job as it ended.
StatusOr<v1::Job> follow(Coordinator& coordinator, const std::string& name, FILE* stream);

// Connects, or says why not.
StatusOr<std::unique_ptr<Coordinator>> connect(const std::string& from_command_line);

// "penstock watch NAME ..." for the person who has just submitted it. `flag` is "" or " --coordinator
// ADDRESS".
std::string useful_commands(const std::string& job, const std::string& flag);

}  // namespace penstock::client
