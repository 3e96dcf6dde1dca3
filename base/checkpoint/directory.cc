#include "base/checkpoint/directory.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/atomic_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRemovedPrefix = ".removed-";

Status failed(const std::string& path, const char* what, const std::error_code& failure) {
  return unavailable("{} cannot be {}: {}", path, what, failure.message());
}

StatusOr<std::vector<std::string>> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failure;
  if (!fs::exists(directory, failure) && !failure) return names;
  for (fs::directory_iterator entry(directory, failure), end; !failure && entry != end;
       entry.increment(failure))
    names.push_back(entry->path().filename().string());
  if (failure) return failed(directory, "read", failure);
  return names;
}

std::string hidden_path(const std::string& directory, const std::string& name) {
  return directory + "/" + kRemovedPrefix + name;
}

// Out of sight: what is half removed must not be taken for half written.
Status hide_checkpoint(const std::string& directory, const std::string& name) {
  const std::string hidden = hidden_path(directory, name);
  std::error_code failure;
  fs::remove_all(hidden, failure);
  fs::rename(directory + "/" + name, hidden, failure);
  return failure ? failed(directory + "/" + name, "moved", failure) : ok_status();
}

Status remove_hidden(const std::string& directory, const std::string& name) {
  const std::string hidden = hidden_path(directory, name);
  std::error_code failure;
  fs::remove_all(hidden, failure);
  return failure ? failed(hidden, "removed", failure) : ok_status();
}

Status remove_checkpoint(const std::string& directory, const std::string& name) {
  PENSTOCK_RETURN_IF_ERROR(hide_checkpoint(directory, name));
  return remove_hidden(directory, name);
}

Status refuse(const ListedCheckpoint& listed, const std::string& job, int64_t latest_step,
              std::span<const ExpectedTensor> expected, std::optional<Checkpoint>& checkpoint) {
  if (listed.step > latest_step)
    return failed_precondition("{}: expected at most {} steps, which are on record, found {}", listed.path,
                               latest_step, listed.step);
  PENSTOCK_ASSIGN_OR_RETURN(Checkpoint opened, Checkpoint::open(listed.path));
  if (opened.manifest().job != job)
    return failed_precondition("{}: expected a checkpoint of job {}, found one of job {}", listed.path, job,
                               opened.manifest().job);
  PENSTOCK_RETURN_IF_ERROR(opened.check(expected));
  PENSTOCK_RETURN_IF_ERROR(opened.verify());
  checkpoint.emplace(std::move(opened));
  return ok_status();
}

}  // namespace

StatusOr<std::vector<ListedCheckpoint>> list_checkpoints(const std::string& directory) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_in(directory));
  std::vector<ListedCheckpoint> found;
  for (const std::string& name : names) {
    const int64_t step = step_of_checkpoint(name);
    if (step >= 0) found.push_back({step, directory + "/" + name});
  }
  std::sort(found.begin(), found.end(),
            [](const ListedCheckpoint& a, const ListedCheckpoint& b) { return a.step > b.step; });
  return found;
}

StatusOr<NewestCheckpoint> newest_checkpoint(const std::string& directory, const std::string& job,
                                             int64_t latest_step, std::span<const ExpectedTensor> expected) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, list_checkpoints(directory));
  NewestCheckpoint newest;
  for (const ListedCheckpoint& one : listed) {
    const Status refused = refuse(one, job, latest_step, expected, newest.checkpoint);
    if (refused.ok()) break;
    newest.refused.push_back(message(refused));
  }
  return newest;
}

StatusOr<std::string> commit_draft(const std::string& directory, const std::string& draft,
                                   const CheckpointManifest& manifest,
                                   std::span<const ExpectedTensor> expected) {
  const std::string path = directory + "/" + draft;
  PENSTOCK_RETURN_IF_ERROR(write_atomically(path + "/" + kManifestFile, format_manifest(manifest)));
  PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint written, Checkpoint::open(path));
  PENSTOCK_RETURN_IF_ERROR(written.check(expected));
  const std::string name = checkpoint_name(manifest.step);
  const std::string target = directory + "/" + name;
  std::error_code failure;
  const bool replaces = fs::exists(target, failure);
  if (replaces) {
    const StatusOr<Checkpoint> before = Checkpoint::open(target);
    if (before.ok() && before->manifest().job != manifest.job)
      return already_exists("{}: expected none, or one of job {}, found one of job {}: it stays", target,
                            manifest.job, before->manifest().job);
    PENSTOCK_RETURN_IF_ERROR(hide_checkpoint(directory, name));
  }
  fs::rename(path, target, failure);
  if (failure) {
    std::error_code ignored;
    if (replaces) fs::rename(hidden_path(directory, name), target, ignored);
    return failed(path, "renamed into place", failure);
  }
  PENSTOCK_RETURN_IF_ERROR(sync_folder(directory));
  (void)remove_hidden(directory, name);  // else remove_older does
  return target;
}

Status remove_older(const std::string& directory, int64_t committed, int64_t keep) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<ListedCheckpoint> listed, list_checkpoints(directory));
  std::erase_if(listed, [&](const ListedCheckpoint& one) { return one.step > committed; });
  for (size_t i = static_cast<size_t>(keep); i < listed.size(); ++i)
    PENSTOCK_RETURN_IF_ERROR(remove_checkpoint(directory, checkpoint_name(listed[i].step)));
  return remove_drafts(directory, kRemovedPrefix);
}

Status remove_drafts(const std::string& directory, const std::string& prefix) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_in(directory));
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    std::error_code failure;
    fs::remove_all(directory + "/" + name, failure);
    if (failure) return failed(directory + "/" + name, "removed", failure);
  }
  return ok_status();
}

}  // namespace penstock
