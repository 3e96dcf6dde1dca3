// A small checkpoint of two ranks, as a test wants it. Tests only: errors stop the process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/checkpoint/directory.h"
#include "base/checkpoint/shard.h"

namespace penstock::testing {

inline std::vector<ExpectedTensor> sample_weights() {
  return {{"model.embed_tokens.weight", {6, 4}},
          {"model.layers.0.mlp.up_proj.weight", {3, 4}},
          {"model.layers.100.input_layernorm.weight", {4}},
          {"lm_head.weight", {6, 4}}};
}

inline std::vector<ExpectedTensor> sample_tensors() {
  return checkpoint_tensors(sample_weights());
}

// Values that tell tensor, step and element apart.
inline std::vector<float> sample_values(const ExpectedTensor& tensor, int64_t step) {
  size_t count = 1;
  for (const int64_t extent : tensor.shape) count *= static_cast<size_t>(extent);
  std::vector<float> values(count);
  const auto base =
      static_cast<float>(tensor.name.size() + tensor.name.front()) + static_cast<float>(step) * 0.01f;
  for (size_t i = 0; i < count; ++i) values[i] = base + static_cast<float>(i) * 0.5f;
  return values;
}

inline CheckpointShard write_sample_shard(const std::string& folder, const std::string& name,
                                          const std::vector<ExpectedTensor>& tensors, int64_t step) {
  std::vector<std::vector<float>> values;
  std::vector<TensorToStore> stored;
  for (const ExpectedTensor& tensor : tensors) values.push_back(sample_values(tensor, step));
  for (size_t i = 0; i < tensors.size(); ++i)
    stored.push_back({tensors[i].name, tensors[i].shape, values[i]});
  auto shard = write_shard(folder, name, stored);
  PENSTOCK_CHECK(shard.ok(), "{}", message(shard.status()));
  return *std::move(shard);
}

// Returns its folder, directory/step-NNNNNNNNN. Weights and moments lie in two shards each.
inline std::string write_sample(const std::string& directory, int64_t step) {
  const std::string draft = std::string(kDraftPrefix) + checkpoint_name(step);
  const std::string folder = directory + "/" + draft;
  std::filesystem::create_directories(folder);
  const std::vector<ExpectedTensor> all = sample_tensors();
  CheckpointManifest manifest;
  manifest.job = "sample";
  manifest.step = step;
  manifest.samples = 8 * step;
  manifest.spec_yaml = "name: sample\n";
  manifest.fingerprint = "test";
  manifest.weights_digest = std::string(32, 'a');
  const std::string config = "{\"hidden_size\": 4}\n";
  PENSTOCK_CHECK(write_atomically(folder + "/config.json", config).ok(), "{}", folder);
  manifest.texts.push_back({"config.json", static_cast<int64_t>(config.size()), digest_of(config)});
  const auto part = [&](const char* name, size_t first, size_t count) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    manifest.shards.push_back(
        write_sample_shard(folder, name, {begin, begin + static_cast<std::ptrdiff_t>(count)}, step));
  };
  part("rank-00000-of-00002.safetensors", 0, 2);
  part("rank-00001-of-00002.safetensors", 2, 2);
  part("moments-00000-of-00002.safetensors", 4, 4);
  part("moments-00001-of-00002.safetensors", 8, 4);
  auto path = commit_draft(directory, draft, manifest, all);
  PENSTOCK_CHECK(path.ok(), "{}", message(path.status()));
  return *path;
}

// As every loader asks: whole, complete, and with the values that were written.
inline Status load_sample(const std::string& folder) {
  PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  const std::vector<ExpectedTensor> expected = sample_tensors();
  PENSTOCK_RETURN_IF_ERROR(checkpoint.check(expected));
  for (const ExpectedTensor& tensor : expected) {
    std::vector<float> values(static_cast<size_t>(checkpoint.find(tensor.name)->elements()));
    PENSTOCK_RETURN_IF_ERROR(checkpoint.read(tensor.name, values));
  }
  return ok_status();
}

}  // namespace penstock::testing
