#include "coordinator/weights/checkpoints.h"

#include <filesystem>
#include <map>

#include "base/atomic_file.h"
#include "base/checkpoint/directory.h"
#include "base/readable_file.h"
#include "base/text.h"
#include "coordinator/weights/internal/folders.h"
#include "plan/interop/hugging_face.h"
#include "plan/spec/parameters.h"
#include "plan/spec/weights_digest.h"

namespace penstock::coordinator {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

StatusOr<StartingCheckpoint> prepare_checkpoints(const CheckpointsWanted& wanted,
                                                 const plan::ModelSpec& model) {
  if (wanted.place.directory.front() != '/')
    return invalid_argument("checkpoint.directory: expected an absolute path, found {}",
                            wanted.place.directory);
  if (wanted.latest_step == 0) PENSTOCK_RETURN_IF_ERROR(make_room(wanted));
  PENSTOCK_RETURN_IF_ERROR(make_marked_folder(wanted.place));
  PENSTOCK_RETURN_IF_ERROR(remove_drafts(wanted.place.directory, draft_prefix(wanted.job)));
  StartingCheckpoint start;
  if (wanted.latest_step == 0) return start;
  PENSTOCK_ASSIGN_OR_RETURN(NewestCheckpoint newest,
                            newest_checkpoint(wanted.place.directory, wanted.job, wanted.latest_step,
                                              checkpoint_tensors(weights_of(model))));
  start.refused = std::move(newest.refused);
  if (!newest.checkpoint) return start;
  start.path = newest.checkpoint->path();
  start.step = newest.checkpoint->manifest().step;
  return start;
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
  PENSTOCK_RETURN_IF_ERROR(remove_older(draft.place.directory, draft.step, spec.checkpoint.keep));
  return manifest.weights_digest;
}

Status discard_checkpoint(const CheckpointDraft& draft) {
  return remove_drafts(draft.place.directory, draft_name(draft.job, draft.attempt, draft.step));
}

}  // namespace penstock::coordinator
