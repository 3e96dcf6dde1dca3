// Reads tests/fixtures/llama: the numbers that PyTorch found for a tiny Llama, a tiny Qwen3 and a tiny Qwen3-MoE. Tests only:
// errors stop the process.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/tensor/tensor.h"
#include "plan/spec/job_spec.h"

namespace penstock::worker {

class LlamaFixture {
 public:
  // `name`: "llama", "qwen3" or "moe".
  explicit LlamaFixture(const std::string& folder, const std::string& name = "llama") : folder_(folder) {
    std::ifstream index(fmt::format("{}/{}.txt", folder, name));
    std::string key;
    while (index >> key && key != "tensors") index >> numbers_[key];
    PENSTOCK_CHECK(key == "tensors", "{}/{}.txt", folder, name);
    std::ifstream blob(fmt::format("{}/{}.bin", folder, name), std::ios::binary);
    Place place;
    while (index >> key >> place.elements >> place.offset) {
      std::vector<float>& values = tensors_[key];
      values.resize(place.elements);
      blob.seekg(static_cast<std::streamoff>(place.offset * sizeof(float)));
      blob.read(reinterpret_cast<char*>(values.data()),
                static_cast<std::streamsize>(place.elements * sizeof(float)));
      PENSTOCK_CHECK(blob.good(), "{}", key);
    }
  }

  double number(const std::string& key) const {
    const auto found = numbers_.find(key);
    PENSTOCK_CHECK(found != numbers_.end(), "{}", key);
    return found->second;
  }
  int64_t count(const std::string& key) const { return static_cast<int64_t>(number(key)); }
  std::span<const float> tensor(const std::string& name) const {
    const auto found = tensors_.find(name);
    PENSTOCK_CHECK(found != tensors_.end(), "{}", name);
    return found->second;
  }

  plan::JobSpec job(int64_t microbatch_size) const {
    plan::JobSpec job;
    job.model = {.vocab_size = count("vocab_size"),
                 .hidden_size = count("hidden_size"),
                 .num_hidden_layers = count("num_hidden_layers"),
                 .num_attention_heads = count("num_attention_heads"),
                 .num_key_value_heads = count("num_key_value_heads"),
                 .intermediate_size = count("intermediate_size"),
                 .max_position_embeddings = count("sequence_length"),
                 .rope_theta = number("rope_theta"),
                 .rms_norm_eps = number("rms_norm_eps")};
    if (numbers_.contains("head_dim")) {
      job.model.head_dim = count("head_dim");
      job.model.qk_norm = count("qk_norm") == 1;
      job.model.tie_word_embeddings = count("tie_word_embeddings") == 1;
    }
    if (numbers_.contains("num_experts")) {
      job.model.moe = {.num_experts = count("num_experts"),
                       .num_experts_per_tok = count("num_experts_per_tok"),
                       .moe_intermediate_size = count("moe_intermediate_size"),
                       .layers = {count("expert_layer")},
                       .norm_topk_prob = true,
                       .router_aux_loss_coef = number("router_aux_loss_coef"),
                       .router_z_loss_coef = number("router_z_loss_coef")};
    }
    job.data.sources = {folder_ + "/text.bin"};
    job.data.format = "text";
    job.data.sequence_length = count("sequence_length");
    job.train.steps = count("steps");
    job.train.global_batch_size = count("global_batch_size");
    job.train.microbatch_size = microbatch_size;
    job.train.seed = count("seed");
    job.train.optimizer.lr = number("lr");
    job.train.optimizer.betas = {number("beta1"), number("beta2")};
    job.train.optimizer.eps = number("eps");
    job.train.optimizer.weight_decay = number("weight_decay");
    job.train.optimizer.clip_grad_norm = number("clip_grad_norm");
    job.train.lr_schedule = {"cosine", count("warmup_steps"), /*decay_steps=*/0, number("min_ratio")};
    return job;
  }

 private:
  struct Place {
    size_t elements = 0;
    size_t offset = 0;
  };
  std::string folder_;
  std::map<std::string, double> numbers_;
  std::map<std::string, std::vector<float>> tensors_;
};

// Largest difference, relative to the largest expected value.
inline double relative_error(std::span<const float> found, std::span<const float> expected) {
  PENSTOCK_CHECK_EQ(found.size(), expected.size());
  double difference = 0;
  double scale = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(found[i])) return INFINITY;
    difference = std::max(difference, std::abs(static_cast<double>(found[i]) - expected[i]));
    scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
  }
  return difference / scale;
}

inline std::span<float> values_of(kernels::TensorView tensor) {
  return {tensor.f32(), static_cast<size_t>(tensor.elements())};
}

}  // namespace penstock::worker
