// A job file on its way to the service: read, checked here first, its data paths made absolute, the model or the
// checkpoint that it starts from read into it, and what it leaves to `auto` planned.
#pragma once

#include <optional>
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
  std::vector<std::string>
      planned{};  // what its `auto` fields became, and why; none: equal counts. Sentences.
  // Of a job that goes on with another one's checkpoint: which, and what it says otherwise. Sentences.
  std::vector<std::string> start{};
};

struct JobFileOptions {
  ConnectionOptions connection{};
  CostOptions costs{};
  std::optional<plan::JobSpec> running{};  // that goes on with this file: what it was planned to be stays
};

// InvalidArgument, with every problem as refused() words it, or with why the file cannot be read: it is a
// regular file of at most plan::kLargestJobFileBytes. The coordinator at `connection` is asked for the checkpoint of a
// job that restart.from names and for the measurements of those in `costs`, and for nothing else.
StatusOr<JobFile> read_job_file(const std::string& path, const JobFileOptions& options = {});

// The text with what stands in the files and folders that it names; what it leaves to `auto` is left. Errors as above.
StatusOr<std::string> read_job_text(const std::string& path, const ConnectionOptions& connection);

// "PATH is refused:" and the problems, a line each: found here, or by the coordinator.
Status refused(const std::string& path, const Status& problems);

// Why a job was not submitted, from how the call ended; a call without an answer may have queued it.
Status not_submitted(const std::string& path, const JobFile& file, const Status& end);

// What submit prints about the shape of a job: ranks, stages, microbatches, the split and the notes.
std::string shape_text(const JobFile& file);

}  // namespace penstock::client
