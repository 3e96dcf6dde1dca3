#include "client/commands/restart_checkpoint.h"

#include <filesystem>

#include "base/checkpoint/directory.h"
#include "client/commands/follow.h"
#include "client/present/job_words.h"
#include "plan/interop/hugging_face.h"

namespace penstock::client {
namespace {

namespace fs = std::filesystem;

// The checkpoint that a folder is, or the newest one in it.
StatusOr<std::string> checkpoint_in(const std::string& folder) {
  std::error_code ignored;
  if (fs::exists(folder + "/" + kManifestFile, ignored)) return folder;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, list_checkpoints(folder));
  if (!listed.empty()) return listed.front().path;
  if (fs::exists(folder + "/" + plan::kHuggingFaceConfigFile, ignored)) {
    return failed_precondition(
        "{}: expected a checkpoint, found weights without an optimizer's state: to begin at step 0 with them, write "
        "model: {{from: {}}}",
        folder, folder);
  }
  return not_found("{}: expected a checkpoint (a folder with a {}) or a directory of them, found neither",
                   folder, kManifestFile);
}

StatusOr<std::string> checkpoint_of_job(const std::string& name, const ConnectionOptions& connection) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto coordinator, connect(connection.coordinator));
  const StatusOr<v1::Job> job = coordinator->job(name);
  if (!job.ok()) return with_context(job.status(), fmt::format("{}: no folder beside the job file", name));
  if (job->durable_step() > 0)
    return job->checkpoints_directory() + "/" + checkpoint_name(job->durable_step());
  return failed_precondition("job {} is {} and has no checkpoint: {}", name, name_of(job->state()),
                             job->checkpoints_directory().empty() ? "its file has no checkpoint section"
                                                                  : "its first one is not written yet");
}

StatusOr<std::string> folder_of(const std::string& source, const std::string& directory,
                                const ConnectionOptions& connection) {
  const std::string folder = (fs::path(directory) / source).lexically_normal().string();
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return checkpoint_in(folder);
  if (source.find_first_of("/.") != std::string::npos) return not_found("{}: no such folder", folder);
  return checkpoint_of_job(source, connection);
}

}  // namespace

StatusOr<RestartCheckpoint> find_restart_checkpoint(const std::string& source, const std::string& directory,
                                                    const ConnectionOptions& connection) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string folder, folder_of(source, directory, connection));
  PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  const CheckpointManifest& manifest = checkpoint.manifest();
  return RestartCheckpoint{
      {.path = folder, .step = manifest.step, .samples = manifest.samples}, manifest.job, manifest.spec_yaml};
}

}  // namespace penstock::client
