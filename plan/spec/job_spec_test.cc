#include "plan/spec/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kJob = R"(name: quickstart
model:
  vocab_size: 256
  hidden_size: 128
  num_hidden_layers: 8
  num_attention_heads: 4
  num_key_value_heads: 2
  intermediate_size: 352
  max_position_embeddings: 128
  rope_theta: 10000
  rms_norm_eps: 1e-5
  tie_word_embeddings: false
data:
  source: corpus.txt
  format: auto
  tokenizer: bytes
  sequence_length: 128
train:
  steps: 200
  global_batch_size: 32
  microbatch_size: 4
  dtype: float32
  seed: 1
  optimizer: {name: adamw, lr: 1e-3, betas: [0.9, 0.95], weight_decay: 0.1, clip_grad_norm: 1.0}
  lr_schedule: {name: cosine, warmup_steps: 20}
parallel:
  pipeline: 4
  stages_per_rank: 2
  schedule: interleaved-1f1b
  split: auto
  expert: 1
  data: 1
  p2p: {mode: two-sided}
  optimizer_step: barrier
recompute: none
two_batch_overlap: false
device: {kind: cpu, threads: 1}
memory_budget: 80GB
restart: {max: 5, no_progress_limit: 3}
rebalance: off
)";

// The job with one piece of its text replaced; the piece must be there, or the test would prove nothing.
std::string with(const std::string& piece, const std::string& replacement) {
  std::string text = kJob;
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), replacement);
}

std::string refusal(const std::string& yaml) {
  const StatusOr<JobSpec> spec = parse_job_spec(yaml);
  EXPECT_FALSE(spec.ok()) << yaml;
  if (spec.ok()) return "";
  EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument);
  return message(spec.status());
}

TEST(ParseJobSpec, a_whole_job_file_is_read_into_its_fields) {
  const StatusOr<JobSpec> spec = parse_job_spec(kJob);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, "quickstart");
  EXPECT_EQ(spec->model.vocab_size, 256);
  EXPECT_EQ(spec->model.head_size(), 32);
  EXPECT_EQ(spec->model.num_key_value_heads, 2);
  EXPECT_EQ(spec->model.rms_norm_eps, 1e-5);
  EXPECT_THAT(spec->data.sources, ElementsAre("corpus.txt"));
  EXPECT_EQ(spec->train.optimizer.betas[1], 0.95);
  EXPECT_EQ(spec->train.lr_schedule.name, "cosine");
  EXPECT_EQ(spec->train.lr_schedule.warmup_steps, 20);
  EXPECT_EQ(spec->stages(), 8);
  EXPECT_EQ(spec->microbatches(), 8);
  EXPECT_EQ(spec->tokens_per_step(), 32 * 128);
  EXPECT_EQ(spec->memory_budget_bytes, 80'000'000'000);
  EXPECT_EQ(spec->yaml, kJob);
  EXPECT_EQ(place_of(*spec, "parallel.schedule"), "line 29: parallel.schedule");
}

TEST(ParseJobSpec, an_unknown_key_is_refused_with_line_and_nearest_name) {
  EXPECT_EQ(refusal(with("hidden_size: 128", "hiden_size: 128")),
            "line 2: model.hidden_size: expected a value, found no such key\n"
            "line 4: model.hiden_size: expected a key of model (vocab_size, hidden_size, num_hidden_layers "
            "and 9 more),"
            " found an unknown key; did you mean hidden_size?");
}

}  // namespace
}  // namespace penstock::plan
