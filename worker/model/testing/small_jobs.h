// A small job for tests of stages, what its model may say, and what a step of it leaves.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "worker/model/testing/sequential_run.h"

namespace penstock::worker {

// A model whose sizes are no multiples of anything convenient, on a text of random bytes.
class SmallJobTest : public ::testing::Test {
 protected:
  SmallJobTest() {
    path_ =
        std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_small_job_{}.txt", ::getpid());
    std::mt19937 random(4);
    std::string text(4000, 0);
    for (char& c : text) c = static_cast<char>(random() % 128);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~SmallJobTest() override { std::filesystem::remove(path_); }

  plan::JobSpec job() const {
    plan::JobSpec job;
    job.model.vocab_size = 131;
    job.model.hidden_size = 36;
    job.model.num_hidden_layers = 5;
    job.model.num_attention_heads = 6;
    job.model.num_key_value_heads = 2;
    job.model.intermediate_size = 52;
    job.model.initializer_range = 0.2;
    job.data.sources = {path_};
    job.data.sequence_length = 21;
    job.train.global_batch_size = 8;
    job.train.microbatch_size = 2;
    job.train.seed = 1;
    return job;
  }

  std::filesystem::path path_;
};

// What a step leaves: the loss and all gradients, to be compared bit for bit.
struct Outcome {
  double loss = 0;
  std::vector<std::vector<float>> gradients;

  static Outcome of(const SequentialRun& run) {
    Outcome outcome{run.loss_sum(), {}};
    for (const Parameter& parameter : run.parameters()) {
      const float* begin = parameter.gradient.f32();
      outcome.gradients.emplace_back(begin, begin + parameter.gradient.elements());
    }
    return outcome;
  }
};

inline void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(std::bit_cast<uint64_t>(a.loss), std::bit_cast<uint64_t>(b.loss)) << a.loss << " " << b.loss;
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].size(), b.gradients[i].size());
    const size_t bytes = a.gradients[i].size() * sizeof(float);
    EXPECT_EQ(std::memcmp(a.gradients[i].data(), b.gradients[i].data(), bytes), 0) << "parameter " << i;
  }
}

inline plan::JobSpec in_bfloat16(plan::JobSpec job) {
  job.train.dtype = "bfloat16";
  return job;
}

// What a model may say, one at a time and all together.
inline plan::JobSpec with_tied_embeddings(plan::JobSpec job) {
  job.model.tie_word_embeddings = true;
  return job;
}
inline plan::JobSpec with_qk_norm(plan::JobSpec job) {
  job.model.qk_norm = true;
  job.model.head_dim = 10;
  return job;
}
inline plan::JobSpec with_dropout(plan::JobSpec job) {
  job.model.hidden_dropout = 0.3;
  return job;
}
inline plan::JobSpec with_uneven_microbatches(plan::JobSpec job) {
  job.train.microbatch_size = 3;  // 8 sequences in 3, 3 and 2
  return job;
}
inline plan::JobSpec with_experts(plan::JobSpec job) {
  job.model.moe = {.num_experts = 4,
                   .num_experts_per_tok = 2,
                   .moe_intermediate_size = 20,
                   .layers = {1, 3, 4},
                   .norm_topk_prob = true,
                   .router_aux_loss_coef = 0.1,
                   .router_z_loss_coef = 0.01};
  return job;
}
// Beside the routed ones a network of 60, wider than an MLP.
inline plan::JobSpec with_shared_experts(plan::JobSpec job) {
  job = with_experts(std::move(job));
  job.model.moe.num_shared_experts = 3;
  return job;
}
inline plan::JobSpec with_capacity(plan::JobSpec job) {
  job.model.moe.capacity_factor = 0.9;
  return job;
}
inline plan::JobSpec with_norms_across_heads(plan::JobSpec job) {
  job.model.qk_norm = job.model.qk_norm_across_heads = true;
  return job;
}
inline plan::JobSpec with_documents(plan::JobSpec job) {
  job.data.end_of_document = 0;
  return job;
}

}  // namespace penstock::worker
