#include "client/commands/checkpoint_source.h"

#include <filesystem>

#include "base/checkpoint/manifest.h"
#include "client/commands/follow.h"
#include "client/present/job_words.h"

namespace penstock::client {

StatusOr<std::string> checkpoint_folder(const std::string& source, const ConnectionOptions& connection) {
  std::error_code ignored;
  if (std::filesystem::is_directory(source, ignored)) return source;
  if (source.find_first_of("/.") != std::string::npos) return not_found("{}: no such folder", source);
  PENSTOCK_ASSIGN_OR_RETURN(const auto coordinator, connect(connection.coordinator));
  const StatusOr<v1::Job> job = coordinator->job(source);
  if (!job.ok()) return with_context(job.status(), fmt::format("{}: no folder here", source));
  if (!job->weights_directory().empty()) return job->weights_directory();
  if (job->durable_step() > 0)
    return job->checkpoints_directory() + "/" + checkpoint_name(job->durable_step());
  return failed_precondition(
      "job {} is {} and has no weights yet: it has them once it has succeeded, or written a checkpoint",
      source, name_of(job->state()));
}

}  // namespace penstock::client
