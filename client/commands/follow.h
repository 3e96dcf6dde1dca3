// Follows a job to its end and shows its progress.
#pragma once

#include <cstdio>
#include <string>

#include "base/status.h"
#include "client/connection/coordinator.h"

namespace penstock::client {

// Draws on `stream` (see ProgressPrinter). Returns the job as it ended; `last_seen` is kept up to date on the
// way there. Cancelled after Coordinator::stop(), and when `stream` is stdout and cannot be written.
StatusOr<v1::Job> follow(Coordinator& coordinator, const std::string& name, FILE* stream,
                         v1::Job* last_seen = nullptr);

// Connects, or says why not.
StatusOr<std::unique_ptr<Coordinator>> connect(const std::string& from_command_line);

// "penstock watch NAME ..." for the person who has just submitted it. `flag` is "" or
// " --coordinator ADDRESS".
std::string useful_commands(const std::string& job, const std::string& flag);

}  // namespace penstock::client
