// A rank's part of a checkpoint, as its executor leaves it. Tests only: errors stop the process.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/checkpoint/shard.h"
#include "base/safetensors/folder.h"
#include "coordinator/weights/checkpoints.h"
#include "plan/spec/parameters.h"

namespace penstock::coordinator::testing {

using Parameters = std::vector<plan::ParameterSpec>;

inline CheckpointManifest empty_part(const CheckpointDraft& draft, const plan::JobSpec& spec) {
  CheckpointManifest part;
  part.job = draft.job;
  part.step = draft.step;
  part.spec_yaml = spec.yaml;
  part.fingerprint = "test";
  return part;
}

// Values tell the parameter and the step apart.
inline CheckpointShard write_tensors(const std::string& folder, const std::string& file,
                                     const std::vector<std::pair<std::string, plan::ParameterSpec>>& tensors,
                                     int64_t step) {
  std::vector<std::vector<float>> values;
  std::vector<TensorToStore> stored;
  for (const auto& [name, parameter] : tensors)
    values.emplace_back(static_cast<size_t>(parameter.elements()),
                        0.5f * static_cast<float>(parameter.index) + 1e-3f * static_cast<float>(step));
  for (size_t i = 0; i < tensors.size(); ++i)
    stored.push_back({tensors[i].first, tensors[i].second.shape, values[i]});
  StatusOr<CheckpointShard> shard = write_shard(folder, file, stored);
  PENSTOCK_CHECK(shard.ok(), "{}", message(shard.status()));
  return *std::move(shard);
}

// With the weights of some parameters and the moments of some.
inline void write_part(const CheckpointDraft& draft, int rank, int ranks, CheckpointManifest part,
                       const Parameters& with_weights, const Parameters& with_moments) {
  const std::string folder = draft.place.directory + "/" + draft_name(draft.job, draft.attempt, draft.step);
  std::filesystem::create_directories(folder);
  std::vector<std::pair<std::string, plan::ParameterSpec>> weights, moments;
  for (const auto& parameter : with_weights) weights.emplace_back(parameter.stored_name, parameter);
  for (const auto& parameter : with_moments) {
    moments.emplace_back(first_moment_name(parameter.stored_name), parameter);
    moments.emplace_back(second_moment_name(parameter.stored_name), parameter);
  }
  part.shards.push_back(write_tensors(folder, tensor_file_name("rank", rank, ranks), weights, draft.step));
  part.shards.push_back(write_tensors(folder, tensor_file_name("moments", rank, ranks), moments, draft.step));
  const Status written = write_atomically(folder + "/" + part_name(rank, ranks), format_manifest(part));
  PENSTOCK_CHECK(written.ok(), "{}", message(written));
}

}  // namespace penstock::coordinator::testing
