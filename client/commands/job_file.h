// A job file on its way to the service: read, checked here first, its data paths made absolute, and the model that it
// starts from read into it.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

struct JobFile {
  std::string yaml;        // as it is sent
  plan::JobSpec spec;      // what it says
  std::string searched{};  // what the search for its schedule found; "" without one
};

// InvalidArgument, with every problem as refused() words it, or with why the file cannot be read: it is a
// regular file of at most plan::kLargestJobFileBytes.
StatusOr<JobFile> read_job_file(const std::string& path);

// "PATH is refused:" and the problems, a line each: found here, or by the coordinator.
Status refused(const std::string& path, const Status& problems);

// Why a job was not submitted, from how the call ended; a call without an answer may have queued it.
Status not_submitted(const std::string& path, const JobFile& file, const Status& end);

// What submit prints about the shape of a job: ranks, stages, microbatches, the split and the notes.
std::string shape_text(const JobFile& file);

}  // namespace penstock::client
