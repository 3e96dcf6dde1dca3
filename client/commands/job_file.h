// A job file on its way to the service: read, checked here first, its data paths made absolute, and the model or the
// checkpoint that it starts from read into it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "client/commands/commands.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

struct JobFile {
  std::string yaml;        // as it is sent
  plan::JobSpec spec;      // what it says
  std::string searched{};  // what the search for its schedule found; "" without one
  std::string planned{};  // what `split: auto` became, from costs that are known; "" where it is equal counts
  // Of a job that goes on with another one's checkpoint: which, and what it says otherwise. Sentences.
  std::vector<std::string> start{};
};

// InvalidArgument, with every problem as refused() words it, or with why the file cannot be read: it is a
// regular file of at most plan::kLargestJobFileBytes. The coordinator at `connection` is asked for the checkpoint of a
// job that restart.from names, and for nothing else.
StatusOr<JobFile> read_job_file(const std::string& path, const ConnectionOptions& connection = {});

// "PATH is refused:" and the problems, a line each: found here, or by the coordinator.
Status refused(const std::string& path, const Status& problems);

// Why a job was not submitted, from how the call ended; a call without an answer may have queued it.
Status not_submitted(const std::string& path, const JobFile& file, const Status& end);

// What submit prints about the shape of a job: ranks, stages, microbatches, the split and the notes.
std::string shape_text(const JobFile& file);

}  // namespace penstock::client
