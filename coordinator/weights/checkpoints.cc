#include "coordinator/weights/checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/atomic_file.h"
#include "base/checkpoint/directory.h"
#include "base/log.h"
#include "base/readable_file.h"
#include "base/text.h"
#include "coordinator/weights/internal/folders.h"
#include "plan/interop/hugging_face.h"
#include "plan/spec/parameters.h"
#include "plan/spec/weights_digest.h"

namespace penstock::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockFile = ".lock";

std::vector<ExpectedTensor> weights_of(const plan::ModelSpec& model) {
  std::vector<ExpectedTensor> weights;
  for (const plan::ParameterSpec& spec : plan::model_parameters(model))
    weights.push_back({spec.stored_name, spec.shape});
  return weights;
}

std::string path_of(const CheckpointDraft& draft) {
  return draft.place.directory + "/" + draft_name(draft.job, draft.attempt, draft.step);
}

Status check_part(const CheckpointManifest& part, const CheckpointDraft& draft, const plan::JobSpec& spec) {
  if (part.job != draft.job) return invalid_argument("job: expected {}, found {}", draft.job, part.job);
  if (part.step != draft.step) return invalid_argument("step: expected {}, found {}", draft.step, part.step);
  if (part.spec_yaml != spec.yaml)
    return invalid_argument("spec_yaml: expected that of the job, found another one");
  return ok_status();
}

StatusOr<CheckpointManifest> joined_parts(const CheckpointDraft& draft, const plan::JobSpec& spec,
                                          int ranks) {
  CheckpointManifest all;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = path_of(draft) + "/" + part_name(rank, ranks);
    PENSTOCK_ASSIGN_OR_RETURN(const ReadableFile file, ReadableFile::open(path));
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, file.read_all(kLargestManifest));
    StatusOr<CheckpointManifest> part = parse_manifest(text);
    const Status checked = part.ok() ? check_part(*part, draft, spec) : part.status();
    if (!checked.ok()) return with_context(checked, path);
    if (rank == 0) all.fingerprint = part->fingerprint;
    for (CheckpointShard& shard : part->shards) all.shards.push_back(std::move(shard));
  }
  all.job = draft.job;
  all.step = draft.step;
  all.samples = draft.step * spec.train.global_batch_size;
  all.spec_yaml = spec.yaml;
  return all;
}

// Of the tensors that the parts hold; commit_draft says which of them there must be.
StatusOr<std::string> digest_of(const CheckpointManifest& manifest, const plan::ModelSpec& model,
                                const std::string& path) {
  std::map<std::string, Digest> digests;
  for (const CheckpointShard& shard : manifest.shards) {
    for (const CheckpointTensor& tensor : shard.tensors) {
      if (!digests.emplace(tensor.name, tensor.digest).second)
        return invalid_argument("{}: tensor {}: expected from one rank, found from two", path, tensor.name);
    }
  }
  std::vector<plan::TensorDigest> in_model_order;
  for (const plan::ParameterSpec& spec : plan::model_parameters(model)) {
    const auto digest = digests.find(spec.stored_name);
    if (digest == digests.end())
      return invalid_argument("{}: tensor {}: expected from one rank, found from none", path,
                              spec.stored_name);
    in_model_order.push_back(digest->second);
  }
  return plan::weights_digest(model, in_model_order);
}

Status add_text(const std::string& folder, const std::string& name, const std::string& text,
                CheckpointManifest& manifest) {
  manifest.texts.push_back(
      {name, static_cast<int64_t>(text.size()), penstock::digest_of(std::string_view(text))});
  return write_atomically(folder + "/" + name, text);
}

// So that the folder of a checkpoint can be read by what knows nothing of Penstock.
Status add_hugging_face(const std::string& folder, const plan::ModelSpec& model,
                        CheckpointManifest& manifest) {
  std::map<std::string, std::string> weight_map;
  int64_t total_size = 0;
  for (const CheckpointShard& shard : manifest.shards) {
    if (!shard.name.starts_with("rank-")) continue;
    for (const CheckpointTensor& tensor : shard.tensors) weight_map[tensor.name] = shard.name;
    total_size += shard.data_bytes();
  }
  PENSTOCK_RETURN_IF_ERROR(add_text(folder, plan::kHuggingFaceConfigFile,
                                    plan::model_to_hugging_face(model, "float32"), manifest));
  return add_text(folder, kTensorIndexFile, format_tensor_index(weight_map, total_size), manifest);
}

Status make_room(const CheckpointsWanted& wanted) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> found,
                            list_checkpoints(wanted.place.directory));
  if (found.empty()) return ok_status();
  if (wanted.is_own) return move_beside(wanted.place.directory);
  return already_exists(
      "{}: expected a checkpoint.directory without checkpoints, found {} of an earlier job: choose another one",
      wanted.place.directory, checkpoint_name(found.front().step));
}

// Moving a folder of one's own aside, and thinning it out, must not reach what the job begins with.
Status check_apart(const CheckpointsWanted& wanted) {
  std::error_code ignored;
  const fs::path own = fs::weakly_canonical(wanted.place.directory, ignored);
  const fs::path other = fs::weakly_canonical(wanted.from.path, ignored);
  const auto [end, in_other] = std::mismatch(own.begin(), own.end(), other.begin(), other.end());
  if (wanted.from.path.empty() || end != own.end()) return ok_status();
  return failed_precondition(
      "restart.from: {} is in the folder of this job's own checkpoints, {}, and would be moved or removed: give the job "
      "another name, or a checkpoint.directory",
      wanted.from.path, wanted.place.directory);
}

Status check_absolute(const CheckpointsWanted& wanted) {
  if (wanted.place.directory.front() == '/') return ok_status();
  return invalid_argument("checkpoint.directory: expected an absolute path, found {}",
                          wanted.place.directory);
}

std::string this_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unnamed host";
}

Status prepare_directory(const CheckpointsWanted& wanted) {
  PENSTOCK_RETURN_IF_ERROR(check_absolute(wanted));
  PENSTOCK_RETURN_IF_ERROR(check_apart(wanted));
  if (wanted.latest_step == wanted.from.step) PENSTOCK_RETURN_IF_ERROR(make_room(wanted));
  PENSTOCK_RETURN_IF_ERROR(make_marked_folder(wanted.place));
  return remove_drafts(wanted.place.directory, draft_prefix(wanted.job));
}

StatusOr<Checkpoint> open_other(const plan::StartSpec& from, std::span<const ExpectedTensor> expected) {
  StatusOr<Checkpoint> opened = Checkpoint::open(from.path);
  if (absl::IsNotFound(opened.status())) {
    return not_found(
        "restart.from: {}: its job may have removed it since (checkpoint.keep); submit the job again to "
        "begin with the newest one",
        message(opened.status()));
  }
  const auto check = [&]() -> Status {
    PENSTOCK_RETURN_IF_ERROR(opened.status());
    const CheckpointManifest& manifest = opened->manifest();
    if (manifest.step != from.step || manifest.samples != from.samples) {
      return invalid_argument(
          "{}: expected {} steps of {} sequences, found {} of {}: it has been replaced since the job "
          "was submitted",
          from.path, from.step, from.samples, manifest.step, manifest.samples);
    }
    PENSTOCK_RETURN_IF_ERROR(opened->check(expected));
    return opened->verify();
  };
  if (const Status checked = check(); !checked.ok()) return with_context(checked, "restart.from");
  return opened;
}

StartingCheckpoint started_from(const Checkpoint& checkpoint, StartingCheckpoint start) {
  start.path = checkpoint.path();
  start.step = checkpoint.manifest().step;
  start.fingerprint = checkpoint.manifest().fingerprint;
  return start;
}

}  // namespace

StatusOr<std::optional<FileLock>> lock_checkpoints(const CheckpointsWanted& wanted) {
  if (wanted.place.directory.empty() || wanted.is_own) return std::nullopt;
  PENSTOCK_RETURN_IF_ERROR(check_absolute(wanted));
  PENSTOCK_RETURN_IF_ERROR(make_folder(wanted.place.directory));
  StatusOr<FileLock> lock = FileLock::take(
      wanted.place.directory + "/" + kLockFile,
      fmt::format("job {} of the coordinator that is process {} on {}", wanted.job, getpid(), this_host()));
  if (lock.ok()) return std::optional(*std::move(lock));
  if (!absl::IsAlreadyExists(lock.status())) return lock.status();
  return already_exists(
      "checkpoint.directory: expected one that no other job writes into, found {}: choose another one",
      message(lock.status()));
}

StatusOr<StartingCheckpoint> prepare_checkpoints(const CheckpointsWanted& wanted,
                                                 const plan::ModelSpec& model) {
  const std::vector<ExpectedTensor> expected = checkpoint_tensors(weights_of(model));
  StartingCheckpoint start;
  if (!wanted.place.directory.empty()) {
    PENSTOCK_RETURN_IF_ERROR(prepare_directory(wanted));
    if (wanted.latest_step > wanted.from.step) {
      PENSTOCK_ASSIGN_OR_RETURN(NewestCheckpoint newest, newest_checkpoint(wanted.place.directory, wanted.job,
                                                                           wanted.latest_step, expected));
      start.refused = std::move(newest.refused);
      if (newest.checkpoint) return started_from(*newest.checkpoint, std::move(start));
    }
  }
  if (wanted.from.path.empty()) return start;
  PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint other, open_other(wanted.from, expected));
  start.other_job = other.manifest().job;
  return started_from(other, std::move(start));
}

StatusOr<FoundCheckpoint> find_checkpoint(const std::string& directory, const std::string& job,
                                          int64_t latest_step) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed, list_checkpoints(directory));
  for (const ListedCheckpoint& one : listed) {
    if (one.step > latest_step) continue;
    const StatusOr<Checkpoint> opened = Checkpoint::open(one.path);
    if (opened.ok() && opened->manifest().job == job)
      return FoundCheckpoint{one.step, opened->manifest().weights_digest};
  }
  return FoundCheckpoint{};
}

Status remove_unfinished(const WeightsPlace& place, const std::string& job) {
  std::error_code ignored;
  if (!fs::exists(place.directory + "/" + place.marker, ignored)) return ok_status();
  return remove_drafts(place.directory, draft_prefix(job));
}

StatusOr<std::string> commit_checkpoint(const CheckpointDraft& draft, const plan::JobSpec& spec, int ranks) {
  const std::string folder = path_of(draft);
  PENSTOCK_ASSIGN_OR_RETURN(CheckpointManifest manifest, joined_parts(draft, spec, ranks));
  PENSTOCK_ASSIGN_OR_RETURN(manifest.weights_digest, digest_of(manifest, spec.model, folder));
  PENSTOCK_RETURN_IF_ERROR(add_hugging_face(folder, spec.model, manifest));
  for (int rank = 0; rank < ranks; ++rank)
    PENSTOCK_RETURN_IF_ERROR(remove_file(folder + "/" + part_name(rank, ranks)));
  PENSTOCK_RETURN_IF_ERROR(commit_draft(draft.place.directory,
                                        draft_name(draft.job, draft.attempt, draft.step), manifest,
                                        checkpoint_tensors(weights_of(spec.model)))
                               .status());
  // It is kept, whatever stands in the way of removing others; the next one tries again.
  const Status removed = remove_older(draft.place.directory, draft.step, spec.checkpoint.keep);
  if (!removed.ok()) log::warning("job {}: {}", draft.job, message(removed));
  return manifest.weights_digest;
}

Status discard_checkpoint(const CheckpointDraft& draft) {
  return remove_drafts(draft.place.directory, draft_name(draft.job, draft.attempt, draft.step));
}

}  // namespace penstock::coordinator
