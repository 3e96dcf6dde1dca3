#include "plan/cost/operations.h"

#include <gtest/gtest.h>

#include <array>

#include "plan/cost/slot_bytes.h"
#include "plan/spec/parameter_count.h"

namespace penstock::plan {
namespace {

const Item kEmbedding = {ItemKind::Embedding, {}};
const Item kBlock = {ItemKind::Block, LayerIndex(0)};
const Item kHead = {ItemKind::Head, {}};

JobSpec job_of(const ModelSpec& model, int64_t sequence, int64_t sequences, const std::string& dtype) {
  JobSpec job;
  job.model = model;
  job.data.sequence_length = sequence;
  job.train.global_batch_size = job.train.microbatch_size = sequences;
  job.train.dtype = dtype;
  return job;
}

// T = 6 tokens in sequences of 3; H = 12, A = 2 heads and K = 1 of D = 6, I = 10, V = 257.
JobSpec small() {
  return job_of({.vocab_size = 257,
                 .hidden_size = 12,
                 .num_hidden_layers = 4,
                 .num_attention_heads = 2,
                 .num_key_value_heads = 1,
                 .intermediate_size = 10,
                 .max_position_embeddings = 3},
                3, 2, "float32");
}

// A GPT's block has two matrices of 4 H in its MLP; three of 8/3 H are as many weights.
ModelSpec gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t vocabulary) {
  return {.vocab_size = vocabulary,
          .hidden_size = hidden,
          .num_hidden_layers = layers,
          .num_attention_heads = heads,
          .num_key_value_heads = heads,
          .intermediate_size = hidden * 8 / 3,
          .max_position_embeddings = 4096};
}

double flops_of(const JobSpec& job) {
  double flops = 0;
  for (const Item& item : model_items(job.model)) {
    const ItemOperations operations = operations_of(job, item);
    flops += operations.forward.flops + operations.backward.flops;
  }
  return flops;
}

TEST(Operations, of_a_small_block_are_those_counted_by_hand) {
  const ItemOperations block = operations_of(small(), kBlock);
  const double projections = 2 * 6 * (12 * 12 + 2 * 12 * 6 + 12 * 12);  // q, k and v, o
  // Scores and values of 2 heads of 6: tokens of a sequence see 1, 2 and 3 of them.
  const double attention = 2 * (2 * 2 * 6) * (1 + 2 + 3) * 2;
  const double network = 3 * 2 * 6 * 12 * 10;
  EXPECT_EQ(block.forward.flops, projections + attention + network);
  EXPECT_EQ(block.backward.flops, 2 * (projections + network) + 2.5 * attention);
  const double weights = 2 * 12 + 2 * 144 + 2 * 72 + 3 * 120;
  const auto slot = static_cast<double>(activation_slot_bytes(small(), {kBlock}, BackwardForm::Fused));
  EXPECT_EQ(block.forward.bytes, 4 * weights + 2 * slot);
  EXPECT_EQ(block.backward.bytes, 12 * weights + 3 * slot);
  EXPECT_EQ(block.update.bytes, 40 * weights);
  EXPECT_EQ(block.update.flops, 0);
}

TEST(Operations, of_both_ends_are_those_counted_by_hand) {
  const ItemOperations embedding = operations_of(small(), kEmbedding);
  EXPECT_EQ(embedding.forward.flops + embedding.backward.flops, 0);
  EXPECT_EQ(embedding.forward.bytes, 6 * 12 * 8);
  EXPECT_EQ(embedding.backward.bytes, 6 * 12 * 12);
  const ItemOperations head = operations_of(small(), kHead);
  EXPECT_EQ(head.forward.flops, 3 * 2 * 6 * 12 * 257);  // all three products, where the logits are
  EXPECT_EQ(head.backward.flops, 0);
}

TEST(Operations, what_is_recomputed_runs_twice) {
  JobSpec job = small();
  const ItemOperations kept = operations_of(job, kBlock);
  job.recompute = {0};
  const ItemOperations again = operations_of(job, kBlock);
  EXPECT_EQ(again.forward.flops, kept.forward.flops);
  EXPECT_EQ(again.backward.flops, kept.backward.flops + kept.forward.flops);
  EXPECT_EQ(again.backward.bytes, kept.backward.bytes + kept.forward.bytes);
}

// 96 B s l h^2 (1 + s / 6h + V / 16lh) with recomputation of every block, whose forward is a quarter of that, and attention
// to the whole sequence: without both, 72 B s l h^2 (1 + s / 6h x 7/12 + V / 12lh). Narayanan et al., 2021.
TEST(Operations, of_gpt_3_are_the_published_ones) {
  const JobSpec job = job_of(gpt(96, 12288, 96, 51200), 2048, 1, "bfloat16");
  const double h = 12288, s = 2048, l = 96;
  const double published = 72 * s * l * h * h * (1 + s / (6 * h) * 7 / 12 + 51200 / (12 * l * h));
  EXPECT_NEAR(flops_of(job) / published, 1, 0.001);
}

TEST(Operations, of_a_token_are_six_a_parameter) {
  // Llama 2 7B: 6.74 billion, of which the embedding is looked up. Its attention adds 1.2 % at 512 tokens.
  const ModelSpec llama = {.vocab_size = 32000,
                           .hidden_size = 4096,
                           .num_hidden_layers = 32,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 32,
                           .intermediate_size = 11008,
                           .max_position_embeddings = 4096};
  const double used = 6.738e9 - 32000 * 4096;
  EXPECT_NEAR(flops_of(job_of(llama, 512, 1, "bfloat16")) / (6 * 512 * used), 1, 0.02);
}

TEST(Operations, of_experts_are_six_an_active_parameter) {
  // OLMoE-1B-7B: 1.28 of 6.92 billion parameters are active in a token (arXiv 2409.02060).
  ModelSpec model = {.vocab_size = 50304,
                     .hidden_size = 2048,
                     .num_hidden_layers = 16,
                     .num_attention_heads = 16,
                     .num_key_value_heads = 16,
                     .intermediate_size = 1024,
                     .max_position_embeddings = 4096};
  model.moe = {.num_experts = 64, .num_experts_per_tok = 8, .moe_intermediate_size = 1024};
  for (int64_t layer = 0; layer < 16; ++layer) model.moe.layers.push_back(layer);
  JobSpec job = job_of(model, 256, 2, "bfloat16");
  const double used = 1.28e9 - 50304 * 2048;
  EXPECT_NEAR(flops_of(job) / (6 * 512 * used), 1, 0.02);
  // Rows go where their experts are and as many come: a rank computes as much, with fewer weights.
  const ItemOperations alone = operations_of(job, kBlock);
  job.parallel.expert = 8;
  const ItemOperations shared = operations_of(job, kBlock);
  EXPECT_EQ(shared.forward.flops, alone.forward.flops);
  EXPECT_LT(shared.update.bytes, alone.update.bytes / 6);
  // Beside the weights as many bytes pass, not what a rank has room for.
  const double fewer_weights = (alone.update.bytes - shared.update.bytes) / (32 + 2 * 2);
  EXPECT_NEAR((alone.forward.bytes - 2 * fewer_weights) / shared.forward.bytes, 1, 0.01);
}

// 4B GPT on A100s (arXiv 2411.05288): 32 blocks of 3,072, sequences of 2,048. How many blocks the head is worth, forward
// and backward, as measured; that head makes its logits in passes of their own, which counts for a small vocabulary.
TEST(Operations, tell_what_a_head_is_worth_in_blocks) {
  constexpr std::array<std::pair<int, double>, 4> kMeasured = {
      {{32000, (3.9395 + 4.6722) / (2.6659 + 5.3312)},
       {64000, (7.1510 + 8.5820) / (2.6493 + 5.3053)},
       {128000, (13.6142 + 16.5813) / (2.6345 + 5.2584)},
       {256000, (26.3220 + 31.4213) / (2.6240 + 5.2354)}}};
  const DeviceRates a100 = {.flops_per_second = 312e12, .bytes_per_second = 2.0e12};
  for (const auto& [vocabulary, measured] : kMeasured) {
    const JobSpec job = job_of(gpt(32, 3072, 24, vocabulary), 2048, 1, "bfloat16");
    const auto seconds = [&](const Item& item) {
      const ItemOperations operations = operations_of(job, item);
      return seconds_of(operations.forward, a100) + seconds_of(operations.backward, a100);
    };
    EXPECT_NEAR(seconds(kHead) / seconds(kBlock) / measured, 1, vocabulary == 32000 ? 0.2 : 0.12)
        << vocabulary;
  }
}

}  // namespace
}  // namespace penstock::plan
