// The checkpoint that `restart.from` of a job file means.
#pragma once

#include <string>

#include "base/status.h"
#include "client/commands/commands.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

struct RestartCheckpoint {
  plan::StartSpec start;
  std::string job;        // that wrote it
  std::string spec_yaml;  // its file
};

// `source`: a checkpoint's folder or a directory of them, below `directory` (absolute) where it is relative, of which the
// newest is taken; else the name of a job, whose newest one the coordinator tells. Its manifest and the sizes of its files
// are held against each other; who reads it later reads every byte. NotFound, FailedPrecondition and the errors of
// Checkpoint, with what is expected there.
StatusOr<RestartCheckpoint> find_restart_checkpoint(const std::string& source, const std::string& directory,
                                                    const ConnectionOptions& connection);

}  // namespace penstock::client
