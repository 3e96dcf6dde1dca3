// A job file on its way to the service: read, checked here first, and its data paths made absolute.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

struct JobFile {
  std::string yaml;    // as it is sent
  plan::JobSpec spec;  // what it says
};

// InvalidArgument with every problem, a line each, under the path; NotFound when there is no such file.
StatusOr<JobFile> read_job_file(const std::string& path);

// What submit prints about the shape of a job: ranks, stages, microbatches, the split and the notes.
std::string shape_text(const plan::JobSpec& spec);

}  // namespace penstock::client
