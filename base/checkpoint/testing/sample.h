// A small checkpoint of two ranks, as a test wants it. Tests only: errors stop the process.
#pragma once

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/checkpoint/directory.h"
#include "base/checkpoint/shard.h"

namespace penstock::testing {

// Who wrote what, of those ways that differ in the files that they leave behind.
enum class Layout {
  TwoRanks,       // each with the moments of its weights
  ShardedStates,  // experts of two ranks, moments where a sharded optimizer has them, a rank without weights
  Imported,       // by one program, with moments that are all zero
};

struct SampleShard {
  std::string name;
  std::vector<ExpectedTensor> tensors;
};

inline std::vector<ExpectedTensor> sample_weights(Layout layout = Layout::TwoRanks) {
  std::vector<ExpectedTensor> weights = {{"model.embed_tokens.weight", {6, 4}},
                                         {"model.layers.0.mlp.up_proj.weight", {3, 4}},
                                         {"model.layers.100.input_layernorm.weight", {4}},
                                         {"lm_head.weight", {6, 4}}};
  if (layout != Layout::ShardedStates) return weights;
  weights[1] = {"model.layers.0.mlp.experts.0.up_proj.weight", {3, 4}};
  weights.push_back({"model.layers.0.mlp.experts.1.up_proj.weight", {3, 4}});
  return weights;
}

inline std::vector<ExpectedTensor> sample_tensors(Layout layout = Layout::TwoRanks) {
  return checkpoint_tensors(sample_weights(layout));
}

inline std::vector<ExpectedTensor> moments_of(const std::vector<ExpectedTensor>& weights) {
  std::vector<ExpectedTensor> all = checkpoint_tensors(weights);
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(weights.size()));
  return all;
}

inline std::vector<SampleShard> sample_shards(Layout layout) {
  const std::vector<ExpectedTensor> all = sample_weights(layout);
  const auto weights = [&](std::initializer_list<size_t> which) {
    std::vector<ExpectedTensor> some;
    for (const size_t one : which) some.push_back(all[one]);
    return some;
  };
  switch (layout) {
    case Layout::TwoRanks:
      return {{"rank-00000-of-00002.safetensors", weights({0, 1})},
              {"rank-00001-of-00002.safetensors", weights({2, 3})},
              {"moments-00000-of-00002.safetensors", moments_of(weights({0, 1}))},
              {"moments-00001-of-00002.safetensors", moments_of(weights({2, 3}))}};
    case Layout::ShardedStates:
      return {{"rank-00000-of-00003.safetensors", weights({0, 1, 2, 3})},
              {"rank-00001-of-00003.safetensors", weights({4})},
              {"rank-00002-of-00003.safetensors", {}},
              {"moments-00000-of-00003.safetensors", moments_of(weights({1, 3}))},
              {"moments-00001-of-00003.safetensors", moments_of(weights({4, 2}))},
              {"moments-00002-of-00003.safetensors", moments_of(weights({0}))}};
    case Layout::Imported:
      return {{"rank-00000-of-00001.safetensors", all},
              {"moments-00000-of-00001.safetensors", moments_of(all)}};
  }
  return {};
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
                                          const std::vector<ExpectedTensor>& tensors, int64_t step,
                                          Layout layout = Layout::TwoRanks) {
  std::vector<std::vector<float>> values;
  std::vector<TensorToStore> stored;
  for (const ExpectedTensor& tensor : tensors) {
    values.push_back(sample_values(tensor, step));
    if (layout == Layout::Imported && tensor.name.starts_with("exp_avg"))
      std::fill(values.back().begin(), values.back().end(), 0.0f);
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    stored.push_back({tensors[i].name, tensors[i].shape, values[i]});
  auto shard = write_shard(folder, name, stored);
  PENSTOCK_CHECK(shard.ok(), "{}", message(shard.status()));
  return *std::move(shard);
}

// Returns its folder, directory/step-NNNNNNNNN.
inline std::string write_sample(const std::string& directory, int64_t step,
                                Layout layout = Layout::TwoRanks) {
  const std::string draft = std::string(kDraftPrefix) + checkpoint_name(step);
  const std::string folder = directory + "/" + draft;
  std::filesystem::create_directories(folder);
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
  for (const SampleShard& shard : sample_shards(layout))
    manifest.shards.push_back(write_sample_shard(folder, shard.name, shard.tensors, step, layout));
  auto path = commit_draft(directory, draft, manifest, sample_tensors(layout));
  PENSTOCK_CHECK(path.ok(), "{}", message(path.status()));
  return *path;
}

// As every loader asks: whole, complete, and with the values that were written.
inline Status load_sample(const std::string& folder, Layout layout = Layout::TwoRanks) {
  PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  const std::vector<ExpectedTensor> expected = sample_tensors(layout);
  PENSTOCK_RETURN_IF_ERROR(checkpoint.check(expected));
  for (const ExpectedTensor& tensor : expected) {
    std::vector<float> values(static_cast<size_t>(checkpoint.find(tensor.name)->elements()));
    PENSTOCK_RETURN_IF_ERROR(checkpoint.read(tensor.name, values));
  }
  return ok_status();
}

}  // namespace penstock::testing
