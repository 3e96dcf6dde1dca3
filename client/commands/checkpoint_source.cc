#include "client/commands/checkpoint_source.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/checkpoint/manifest.h"
#include "client/commands/follow.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

constexpr int kMostTries = 10;
constexpr auto kBetweenTries = std::chrono::milliseconds(50);

}  // namespace

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

bool is_gone(const std::string& folder) {
  std::error_code failure;
  return !std::filesystem::exists(folder, failure) && !failure;
}

Status explained(const Status& status, const std::string& folder) {
  if (status.ok() || !is_gone(folder)) return status;
  return error(
      status.code(),
      "{}: the folder is not there: a job that runs removes its older checkpoints; pause it first, or let it "
      "keep more of them (checkpoint.keep)",
      message(status));
}

// The coordinator records a checkpoint after it has removed older ones: its answer may lag behind for a moment.
StatusOr<OpenedSource> open_resolved(const std::function<StatusOr<std::string>()>& resolve,
                                     const std::function<void()>& wait) {
  for (int tries = 1;; ++tries) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string path, resolve());
    StatusOr<ModelFolder> folder = open_model_folder(path);
    if (folder.ok() || !is_gone(path) || tries == kMostTries) return OpenedSource{path, std::move(folder)};
    wait();
  }
}

StatusOr<OpenedSource> open_source(const std::string& source, const ConnectionOptions& connection) {
  return open_resolved([&] { return checkpoint_folder(source, connection); },
                       [] { std::this_thread::sleep_for(kBetweenTries); });
}

}  // namespace penstock::client
