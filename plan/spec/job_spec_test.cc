#include "plan/spec/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

TEST(ParseJobSpec, what_may_be_left_out_has_the_stated_default) {
  const StatusOr<JobSpec> spec = parse_job_spec(
      "name: small\n"
      "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2,\n"
      "        intermediate_size: 8, max_position_embeddings: 16}\n"
      "data: {source: [a.txt, /b/*.txt], sequence_length: 16}\n"
      "train: {steps: 1, global_batch_size: 1, microbatch_size: 1}\n");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.num_key_value_heads, 2);
  EXPECT_THAT(spec->data.sources, ElementsAre("a.txt", "/b/*.txt"));
  EXPECT_EQ(spec->parallel.schedule, "1f1b");
  EXPECT_EQ(spec->ranks(), 1);
  EXPECT_EQ(spec->parallel.split.size(), 1u);
  EXPECT_EQ(spec->train.dtype, "float32");
  EXPECT_EQ(spec->train.lr_schedule.name, "constant");
  EXPECT_EQ(spec->memory_budget_bytes, 0);
  EXPECT_THAT(spec->notes, IsEmpty());
}

TEST(ParseJobSpec, what_a_model_and_its_training_may_say_is_read) {
  std::string text = with("  tie_word_embeddings: false\n",
                          "  tie_word_embeddings: true\n  head_dim: 48\n  qk_norm: true\n"
                          "  hidden_dropout: 0.1\n");
  const auto set = [&](const std::string& piece, const std::string& value) {
    text.replace(text.find(piece), piece.size(), value);
  };
  set("num_attention_heads: 4", "num_attention_heads: 6");  // no divisor of 128: head_dim says the size
  set("{name: cosine, warmup_steps: 20}", "{name: wsd, warmup_steps: 20, decay_steps: 50, min_ratio: 0}");
  set("weight_decay: 0.1", "no_decay: [\"*norm.weight\", model.embed_tokens.weight]");
  set("global_batch_size: 32", "global_batch_size: 30");
  const StatusOr<JobSpec> spec = parse_job_spec(text);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->model.tie_word_embeddings);
  EXPECT_TRUE(spec->model.qk_norm);
  EXPECT_EQ(spec->model.head_size(), 48);
  EXPECT_EQ(spec->model.hidden_dropout, 0.1);
  EXPECT_EQ(spec->train.lr_schedule.name, "wsd");
  EXPECT_EQ(spec->train.lr_schedule.decay_steps, 50);
  EXPECT_EQ(spec->train.lr_schedule.min_ratio, 0);
  EXPECT_THAT(spec->train.optimizer.no_decay, ElementsAre("*norm.weight", "model.embed_tokens.weight"));
  EXPECT_EQ(spec->microbatches(), 8);  // seven of four sequences and one of two
  EXPECT_EQ(spec->tokens_per_step(), 30 * 128);
}

TEST(ParseJobSpec, p2p_is_two_sided_unless_the_job_says_otherwise) {
  EXPECT_EQ(parse_job_spec(with("  p2p: {mode: two-sided}\n", ""))->parallel.p2p, P2pMode::TwoSided);
  EXPECT_EQ(parse_job_spec(kJob)->parallel.p2p, P2pMode::TwoSided);
  EXPECT_EQ(parse_job_spec(with("mode: two-sided", "mode: one-sided"))->parallel.p2p, P2pMode::OneSided);
  EXPECT_EQ(
      refusal(with("mode: two-sided", "mode: onesided")),
      "line 33: parallel.p2p.mode: expected one of two-sided, one-sided, found onesided; did you mean one-sided?");
}

TEST(ParseJobSpec, traced_steps_are_every_hundredth_unless_the_job_says_otherwise) {
  EXPECT_EQ(parse_job_spec(kJob)->trace.every, 100);
  EXPECT_EQ(parse_job_spec(with("rebalance: off", "rebalance: off\ntrace: {every: 7}"))->trace.every, 7);
  EXPECT_EQ(parse_job_spec(with("rebalance: off", "rebalance: off\ntrace: {every: 0}"))->trace.every, 0);
  EXPECT_EQ(refusal(with("rebalance: off", "rebalance: off\ntrace: {every: -1}")),
            "line 41: trace.every: expected a whole number from 0 to 10000000, found -1");
}

TEST(ParseJobSpec, a_better_split_is_looked_for_where_the_job_says_so) {
  EXPECT_EQ(parse_job_spec(with("rebalance: off", "trace: {every: 7}"))->rebalance, Rebalance::Off);
  EXPECT_EQ(parse_job_spec(kJob)->rebalance, Rebalance::Off);
  EXPECT_EQ(parse_job_spec(with("rebalance: off", "rebalance: propose"))->rebalance, Rebalance::Propose);
  EXPECT_EQ(parse_job_spec(with("rebalance: off", "rebalance: apply"))->rebalance, Rebalance::Apply);
}

TEST(ParseJobSpec, experts_are_read_with_their_defaults) {
  const JobSpec spec =
      *parse_job_spec(with("tie_word_embeddings: false",
                           "moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64}"));
  const MoeSpec& moe = spec.model.moe;
  EXPECT_EQ(moe.num_experts, 8);
  EXPECT_EQ(moe.num_experts_per_tok, 2);
  EXPECT_EQ(moe.moe_intermediate_size, 64);
  EXPECT_THAT(moe.layers, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(moe.num_shared_experts, 0);
  EXPECT_FALSE(moe.norm_topk_prob);
  EXPECT_EQ(moe.router_aux_loss_coef, 0.01);
  EXPECT_EQ(moe.router_z_loss_coef, 0);
  EXPECT_EQ(moe.capacity_factor, 0);
  EXPECT_EQ(spec.expert_capacity(), 0);
  EXPECT_EQ(spec.expert_rows(), 4 * 128 * 2);  // every choice of every token
  EXPECT_EQ(parse_job_spec(kJob)->model.moe.num_experts, 0);
  EXPECT_FALSE(parse_job_spec(kJob)->model.has_experts(LayerIndex(0)));
}

TEST(ParseJobSpec, every_key_of_experts_is_read) {
  const JobSpec spec = *parse_job_spec(with(
      "tie_word_embeddings: false",
      "moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, num_shared_experts: 3, layers: [1, "
      "6], norm_topk_prob: true, router_aux_loss_coef: 0.02, router_z_loss_coef: 1e-3, capacity_factor: 1.2}"));
  const MoeSpec& moe = spec.model.moe;
  EXPECT_EQ(moe.num_shared_experts, 3);
  EXPECT_THAT(moe.layers, ElementsAre(1, 6));
  EXPECT_TRUE(spec.model.has_experts(LayerIndex(6)));
  EXPECT_FALSE(spec.model.has_experts(LayerIndex(5)));
  EXPECT_TRUE(moe.norm_topk_prob);
  EXPECT_EQ(moe.router_aux_loss_coef, 0.02);
  EXPECT_EQ(moe.router_z_loss_coef, 1e-3);
  EXPECT_EQ(moe.capacity_factor, 1.2);
  EXPECT_EQ(spec.expert_capacity(), 154);  // 1.2 x 512 tokens x 2 choices / 8 experts, rounded up
  EXPECT_EQ(spec.expert_rows(), 4 * 128 * 2);
  JobSpec tight = spec;
  tight.model.moe.capacity_factor = 0.5;
  EXPECT_EQ(tight.expert_rows(), 64 * 8);
  // Halves have capacities of their own: 1.2 x 256 x 2 / 8.
  JobSpec halved = spec;
  halved.two_batch_overlap = true;
  EXPECT_EQ(halved.expert_capacity(), 77);
  EXPECT_EQ(halved.expert_rows(), 2 * 128 * 2);
  EXPECT_EQ(halved.local_expert_rows(), 2 * 128 * 2);
  halved.parallel.expert = 8;  // of a token at most one choice is of the rank's one expert
  EXPECT_EQ(halved.local_expert_rows(), 8 * 77);
  tight.model.moe.capacity_factor = 1000;
  EXPECT_EQ(tight.expert_capacity(), 512);  // no expert sees a token twice
}

TEST(ParseJobSpec, checkpoints_and_restarts_are_read) {
  const StatusOr<JobSpec> spec = parse_job_spec(kJob);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->restart.max, 5);
  EXPECT_EQ(spec->restart.no_progress_limit, 3);
  EXPECT_EQ(spec->checkpoint.every, 0);
  EXPECT_THAT(spec->notes, IsEmpty());
  const std::string restart = "restart: {max: 5, no_progress_limit: 3}\n";
  const StatusOr<JobSpec> neither = parse_job_spec(with(restart, ""));
  ASSERT_TRUE(neither.ok()) << neither.status();
  EXPECT_EQ(neither->restart.max, 0);
  const StatusOr<JobSpec> written =
      parse_job_spec(with(restart, "checkpoint: {directory: /run, every: 50}\n"));
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->checkpoint.directory, "/run");
  EXPECT_EQ(written->checkpoint.every, 50);
  EXPECT_EQ(written->checkpoint.keep, 3);
  EXPECT_EQ(written->restart.max, 5);
}

struct Refusal {
  std::string piece;        // of the job file
  std::string replacement;  // what stands there instead
  std::string expected;     // the whole message
};

void PrintTo(const Refusal& refusal_case, std::ostream* out) {
  *out << refusal_case.replacement;
}

// Every refusal alone, with its exact text: a person reads these.
class RefusedJobSpec : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedJobSpec, says_line_field_expected_and_found) {
  EXPECT_EQ(refusal(with(GetParam().piece, GetParam().replacement)), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, RefusedJobSpec,
    ::testing::Values(
        Refusal{"rope_theta: 10000", "rope_teta: 10000",
                "line 10: model.rope_teta: expected a key of model (from, vocab_size, "
                "hidden_size and 14 more), found an unknown key; did you mean rope_theta?"},
        Refusal{"device: {kind: cpu, threads: 1}", "devise: {kind: cpu, threads: 1}",
                "line 37: devise: expected a section or key of the job file (name, model, data and 11 more), "
                "found an unknown key; did you mean device?"},
        Refusal{"threads: 1", "q: 1",
                "line 37: device.q: expected a key of device (kind, threads, costs and 2 more), found an "
                "unknown key"},
        Refusal{"  vocab_size: 256\n", "", "line 2: model.vocab_size: expected a value, found no such key"},
        Refusal{"name: quickstart\n", "", "line 1: name: expected a value, found no such key"},
        Refusal{"train:\n  steps: 200\n", "train:\n",
                "line 18: train.steps: expected a value, found no such key"},
        Refusal{
            "  seed: 1\n", "  seed: 1\n  steps: 100\n",
            "line 24: train.steps: expected each key once, found it again; it stands on line 19 already"}));

INSTANTIATE_TEST_SUITE_P(
    Types, RefusedJobSpec,
    ::testing::Values(
        Refusal{"steps: 200", "steps: many",
                "line 19: train.steps: expected a whole number from 1 to 10000000, found many"},
        Refusal{"steps: 200", "steps: \"200\"",
                "line 19: train.steps: expected a whole number from 1 to 10000000, found \"200\""},
        Refusal{"steps: 200", "steps: 2.5",
                "line 19: train.steps: expected a whole number from 1 to 10000000, found 2.5"},
        Refusal{"steps: 200",
                "steps:", "line 19: train.steps: expected a whole number from 1 to 10000000, found nothing"},
        Refusal{"steps: 200", "steps: [1, 2]",
                "line 19: train.steps: expected a whole number from 1 to 10000000, found a list of 2"},
        Refusal{"steps: 200", "steps: 0",
                "line 19: train.steps: expected a whole number from 1 to 10000000, found 0"},
        Refusal{
            "steps: 200", "steps: 99999999999999999999",
            "line 19: train.steps: expected a whole number from 1 to 10000000, found 99999999999999999999"},
        Refusal{"seed: 1", "seed: -1",
                "line 23: train.seed: expected a whole number of at least 0, found -1"},
        Refusal{"tie_word_embeddings: false", "tie_word_embeddings: no",
                "line 12: model.tie_word_embeddings: expected true or false, found no"},
        Refusal{"device: {kind: cpu, threads: 1}", "device: cpu",
                "line 37: device: expected a section of keys and values, found cpu"},
        Refusal{"betas: [0.9, 0.95]", "betas: 0.9",
                "line 24: train.optimizer.betas: expected a list of two numbers, found 0.9"},
        Refusal{"weight_decay: 0.1", "no_decay: norm",
                "line 24: train.optimizer.no_decay: expected a list of at most 64 patterns of parameter "
                "names, found norm"},
        Refusal{"tie_word_embeddings: false", "hidden_dropout: 1",
                "line 12: model.hidden_dropout: expected a finite number of at least 0 and below 1, found 1"},
        Refusal{"betas: [0.9, 0.95]", "betas: [0.9, 1.0]",
                "line 24: train.optimizer.betas[1]: expected a finite number of at least 0 and below 1, "
                "found 1.0"},
        Refusal{"lr: 1e-3", "lr: .nan",
                "line 24: train.optimizer.lr: expected a finite number of at least 0 and at most 1000, found "
                ".nan"},
        Refusal{"lr: 1e-3", "lr: nan",
                "line 24: train.optimizer.lr: expected a finite number of at least 0 and at most 1000, found "
                "nan"},
        Refusal{"lr: 1e-3", "lr: inf",
                "line 24: train.optimizer.lr: expected a finite number of at least 0 and at most 1000, found "
                "inf"},
        Refusal{"rms_norm_eps: 1e-5", "rms_norm_eps: 0",
                "line 11: model.rms_norm_eps: expected a finite number above 0 and at most 1, found 0"},
        Refusal{
            "name: cosine", "name: cosin",
            "line 25: train.lr_schedule.name: expected one of constant, linear, cosine, wsd, found cosin; did you "
            "mean cosine?"},
        Refusal{"name: adamw", "name: sgd", "line 24: train.optimizer.name: expected adamw, found sgd"},
        Refusal{"memory_budget: 80GB", "memory_budget: 80 gigs",
                "line 38: memory_budget: expected whole bytes with an optional unit, as 80GB or 512MiB, "
                "found 80 gigs"},
        Refusal{"memory_budget: 80GB", "memory_budget: 99999999999TiB",
                "line 38: memory_budget: expected whole bytes with an optional unit, as 80GB or 512MiB, "
                "found 99999999999TiB"},
        Refusal{"name: quickstart", "name: Quick Start",
                "line 1: name: expected 1 to 63 of the characters a-z, 0-9 and -, found \"Quick Start\""}));

INSTANTIATE_TEST_SUITE_P(
    Shapes, RefusedJobSpec,
    ::testing::Values(
        Refusal{
            "num_attention_heads: 4", "num_attention_heads: 6",
            "line 6: model.num_attention_heads: expected a divisor of hidden_size (128), or a head_dim, found 6"},
        Refusal{"hidden_size: 128", "hidden_size: 132",
                "line 6: model.num_attention_heads: expected an even head size (hidden_size / "
                "num_attention_heads), as rotary embeddings need, found 132 / 4 = 33"},
        Refusal{"num_key_value_heads: 2", "num_key_value_heads: 3",
                "line 7: model.num_key_value_heads: expected a divisor of num_attention_heads (4), found 3"},
        Refusal{
            "sequence_length: 128", "sequence_length: 256",
            "line 17: data.sequence_length: expected at most model.max_position_embeddings (128), found 256"},
        Refusal{"vocab_size: 256", "vocab_size: 255",
                "line 16: data.tokenizer: expected a model.vocab_size of at least 256, which bytes need, "
                "found 255"},
        Refusal{"microbatch_size: 4", "microbatch_size: 33",
                "line 21: train.microbatch_size: expected at most global_batch_size (32), found 33"},
        Refusal{"tie_word_embeddings: false", "head_dim: 33",
                "line 12: model.head_dim: expected an even number, as rotary embeddings need, found 33"},
        Refusal{"name: cosine, warmup_steps: 20", "name: wsd, warmup_steps: 20",
                "line 25: train.lr_schedule.decay_steps: expected a value, which wsd needs, found none that "
                "can be used"},
        Refusal{"name: cosine, warmup_steps: 20", "name: wsd, warmup_steps: 20, decay_steps: 181",
                "line 25: train.lr_schedule.decay_steps: expected at most train.steps - warmup_steps (180), "
                "found 181"},
        Refusal{"name: cosine, warmup_steps: 20", "name: linear, decay_steps: 18",
                "line 25: train.lr_schedule.decay_steps: expected no such key with linear, which decays from "
                "the warm-up to the last step, found 18"},
        Refusal{"weight_decay: 0.1", "no_decay: [\"*norm.weight\", \"*.bias\"]",
                "line 24: train.optimizer.no_decay: expected patterns of parameters' names, as "
                "model.layers.0.self_attn.q_proj.weight, found *.bias"},
        Refusal{"warmup_steps: 20", "warmup_steps: 201",
                "line 25: train.lr_schedule.warmup_steps: expected at most train.steps (200), found 201"},
        Refusal{"pipeline: 4", "pipeline: 6",
                "line 27: parallel.pipeline: expected at most 10 stages (embedding, 8 blocks, head), found 6 "
                "x 2 = 12"},
        Refusal{
            "schedule: interleaved-1f1b", "schedule: interleaved-1f1",
            "line 29: parallel.schedule: expected one of naive, gpipe, gpipe-lifo, 1f1b, interleaved-1f1b, "
            "looped-bfs, looped-bfs-lifo, 1f1b-v, zb-h1, zb-h2, zb-v, v-half, v-min, dualpipe, dualpipe-v, "
            "chimera, pipedream, pipedream-2bw, zb-auto, v-auto, found interleaved-1f1; did you mean "
            "interleaved-1f1b?"},
        Refusal{"schedule: interleaved-1f1b", "schedule: 1f1b",
                "line 29: parallel.schedule: stages_per_rank: schedule '1f1b' takes 1, found 2; "
                "'interleaved-1f1b' takes any"}));

INSTANTIATE_TEST_SUITE_P(
    AbsurdSizes, RefusedJobSpec,
    ::testing::Values(
        Refusal{"hidden_size: 128", "hidden_size: 1000000",
                "line 4: model.hidden_size: expected a whole number from 1 to 131072, found 1000000"},
        Refusal{"num_hidden_layers: 8", "num_hidden_layers: 9223372036854775807",
                "line 5: model.num_hidden_layers: expected a whole number from 1 to 4096, found "
                "9223372036854775807"},
        Refusal{"microbatch_size: 4", "microbatch_size: 16384",
                "line 21: train.microbatch_size: expected at most global_batch_size (32), found 16384\n"
                "line 21: train.microbatch_size: expected at most 1048576 tokens in a microbatch "
                "(microbatch_size x sequence_length), found 2097152"},
        Refusal{"global_batch_size: 32", "global_batch_size: 262148",
                "line 20: train.global_batch_size: expected at most 65536 microbatches (global_batch_size / "
                "microbatch_size), found 65537"},
        Refusal{"pipeline: 4", "pipeline: 4097",
                "line 27: parallel.pipeline: expected a whole number from 1 to 4096, found 4097"}));

INSTANTIATE_TEST_SUITE_P(
    NotBuiltYet, RefusedJobSpec,
    ::testing::Values(
        Refusal{"dtype: float32", "dtype: mxfp8",
                "line 22: train.dtype: not built yet; expected one of float32, bfloat16, found mxfp8"},
        Refusal{
            "expert: 1", "expert: 2",
            "line 31: parallel.expert: expected 1 for a model without experts; parallel.data puts pipelines side "
            "by side, found 2"},
        Refusal{
            "  data: 1", "  data: 4096",
            "line 20: train.global_batch_size: expected at least a microbatch of 4 for each of parallel.expert x "
            "data = 4096 pipelines, found 32"},
        Refusal{"mode: two-sided", "min_ctas: 1",
                "line 33: parallel.p2p.min_ctas: not built yet; expected no such key, found 1"},
        Refusal{
            "optimizer_step: barrier", "optimizer_step: overlapped",
            "line 34: parallel.optimizer_step: not built yet; expected one of barrier, post-validated, found "
            "overlapped"},
        Refusal{"recompute: none", "recompute: some",
                "line 35: recompute: expected none, full, or a list of 1 to 8 blocks, found some"},
        Refusal{"recompute: none", "recompute: [2, 1]",
                "line 35: recompute: expected a whole number from 3 to 7, found 1"},
        Refusal{
            "two_batch_overlap: false", "two_batch_overlap: true",
            "line 36: two_batch_overlap: expected false for a model without experts, which sends no rows, found "
            "true"},
        Refusal{"kind: cpu", "kind: cuda",
                "line 37: device.kind: not built yet; expected one of cpu, emulated, found cuda"},
        Refusal{"threads: 1", "costs: table.json",
                "line 37: device.costs: expected it beside kind: emulated only, found kind: cpu"},
        Refusal{"rebalance: off", "rebalance: always",
                "line 40: rebalance: expected one of off, propose, apply, found always"},
        Refusal{"rebalance: off", "checkpoint: {keep: 2}",
                "line 40: checkpoint.every: expected a value, found no such key"},
        Refusal{"rebalance: off", "checkpoint: {every: 0}",
                "line 40: checkpoint.every: expected a whole number from 1 to 10000000, found 0"}));

INSTANTIATE_TEST_SUITE_P(
    Yaml, RefusedJobSpec,
    ::testing::Values(Refusal{"name: quickstart", "name: &a quickstart",
                              "line 1: expected no anchors or aliases, found &a"},
                      Refusal{"name: quickstart", "name: *a",
                              "line 1: expected YAML, found the referenced anchor is not defined"},
                      Refusal{"name: quickstart", "name: !!str quickstart",
                              "line 1: expected no tags, found tag:yaml.org,2002:str"},
                      Refusal{"name: quickstart", "? [a]\n: b\nname: quickstart",
                              "line 1: expected a word as key, found a list or a section"},
                      Refusal{"rebalance: off", "rebalance: off\n---\nname: other",
                              "job file: expected one YAML document, found several"},
                      Refusal{"betas: [0.9, 0.95]", "betas: [[[[[[[0.9]]]]]]]",
                              "line 24: expected at most 8 levels of nesting, found more"},
                      Refusal{"seed: 1", "seed: \x01",
                              "line 23: expected plain UTF-8 text without control characters or byte order "
                              "mark, found byte 0x01"},
                      Refusal{"seed: 1", "seed: \xff",
                              "line 23: expected plain UTF-8 text without control characters or byte order "
                              "mark, found byte 0xff"},
                      // The service's protocol takes neither overlong forms nor surrogates.
                      Refusal{"seed: 1", "seed: 1 # \xe0\x80\xaf",
                              "line 23: expected plain UTF-8 text without control characters or byte order "
                              "mark, found byte 0xe0"},
                      Refusal{"seed: 1", "seed: 1 # \xed\xa0\x80",
                              "line 23: expected plain UTF-8 text without control characters or byte order "
                              "mark, found byte 0xed"}));

INSTANTIATE_TEST_SUITE_P(
    Experts, RefusedJobSpec,
    ::testing::Values(
        Refusal{"tie_word_embeddings: false", "moe: {num_experts: 8, moe_intermediate_size: 64}",
                "line 12: model.moe.num_experts_per_tok: expected a value, found no such key"},
        Refusal{"tie_word_embeddings: false",
                "moe: {num_experts: 2, num_experts_per_tok: 3, moe_intermediate_size: 64}",
                "line 12: model.moe.num_experts_per_tok: expected at most num_experts (2), found 3"},
        Refusal{"tie_word_embeddings: false",
                "moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, layers: [1, 1]}",
                "line 12: model.moe.layers: expected a whole number from 2 to 7, found 1"},
        Refusal{"tie_word_embeddings: false",
                "moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, layers: [8]}",
                "line 12: model.moe.layers: expected a whole number from 0 to 7, found 8"},
        Refusal{"tie_word_embeddings: false",
                "moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, layers: []}",
                "line 12: model.moe.layers: expected a list of 1 to 8 blocks, found a list of 0"},
        Refusal{
            "tie_word_embeddings: false",
            "moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, capacity_factor: none}",
            "line 12: model.moe.capacity_factor: expected dropless or a number above 0 and at most 1024, found none"},
        Refusal{"tie_word_embeddings: false",
                "moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, experts: 3}",
                "line 12: model.moe.experts: expected a key of model.moe (num_experts, num_experts_per_tok, "
                "moe_intermediate_size and 6 more), found an unknown key"},
        Refusal{
            "tie_word_embeddings: false",
            "moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 262145, num_shared_experts: 2}",
            "line 12: model.moe.num_shared_experts: expected at most 524288 in num_shared_experts x "
            "moe_intermediate_size, found 2 x 262145"},
        Refusal{
            "num_hidden_layers: 8\n  num_attention_heads: 4",
            "num_hidden_layers: 4096\n  moe: {num_experts: 1024, num_experts_per_tok: 2, moe_intermediate_size: 64}\n"
            "  num_attention_heads: 4",
            "line 6: model.moe.num_experts: expected at most 24576 experts in all layers, found 4194304"},
        Refusal{
            "tie_word_embeddings: false", "qk_norm_across_heads: true",
            "line 12: model.qk_norm_across_heads: expected false where there is no qk_norm: true, found true"}));

TEST(ParseJobSpec, all_problems_are_listed_in_the_order_of_the_file) {
  const std::string text = with("hidden_size: 128", "hidden_size: 130");
  const std::string both = std::string(text).replace(text.find("recompute: none"), 15, "recompute: all");
  EXPECT_EQ(
      refusal(both),
      "line 6: model.num_attention_heads: expected a divisor of hidden_size (130), or a head_dim, found 4\n"
      "line 35: recompute: expected none, full, or a list of 1 to 8 blocks, found all");
}

TEST(ParseJobSpec, more_than_ten_problems_are_counted) {
  std::string text = kJob;
  for (int i = 0; i < 40; ++i) text += "unknown" + std::to_string(i) + ": 1\n";
  const std::string refused = refusal(text);
  EXPECT_EQ(std::count(refused.begin(), refused.end(), '\n'), 10);
  EXPECT_THAT(refused, StartsWith("line 41: unknown0: "));
  EXPECT_THAT(refused, ::testing::EndsWith("\nand 30 more"));
}

TEST(ParseJobSpec, an_empty_text_and_a_text_that_is_no_section_are_refused) {
  EXPECT_EQ(refusal(""), "line 1: job file: expected a section of keys and values, found nothing");
  EXPECT_EQ(refusal("# only a comment\n"),
            "line 1: job file: expected a section of keys and values, found nothing");
  EXPECT_EQ(refusal("train\n"), "line 1: job file: expected a section of keys and values, found train");
  EXPECT_EQ(refusal("[1, 2]\n"),
            "line 1: job file: expected a section of keys and values, found a list of 2");
  EXPECT_EQ(
      refusal("\xef\xbb\xbfname: a"),
      "line 1: expected plain UTF-8 text without control characters or byte order mark, found byte 0xef");
}

TEST(ParseJobSpec, a_text_that_would_cost_much_is_refused_at_once) {
  EXPECT_EQ(refusal(std::string((1 << 20) + 1, ' ')),
            "job file: expected at most 1048576 bytes, found 1048577 bytes");
  EXPECT_THAT(refusal(std::string(1 << 20, '[')), StartsWith("line 1: expected "));
  EXPECT_THAT(refusal(std::string(1 << 20, '{')), HasSubstr("expected"));
  std::string many = "a: [";
  for (int i = 0; i < 100000; ++i) many += "1,";
  EXPECT_THAT(refusal(many + "1]"), HasSubstr("expected at most 65536 values, found more"));
  std::string keys;
  for (int i = 0; i < 300; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(refusal(keys), HasSubstr("expected at most 256 keys in a section, found more"));
}

TEST(ParseJobSpec, memory_budget_takes_units_of_ten_and_of_two) {
  const auto budget = [](const std::string& text) {
    const StatusOr<JobSpec> spec = parse_job_spec(with("80GB", text));
    return spec.ok() ? spec->memory_budget_bytes : -1;
  };
  EXPECT_EQ(budget("123"), 123);
  EXPECT_EQ(budget("1KB"), 1000);
  EXPECT_EQ(budget("512 MiB"), 512 << 20);
  EXPECT_EQ(budget("1048576TiB"), 1LL << 60);
}

TEST(ParseJobSpec, a_model_too_big_for_the_arithmetic_is_refused) {
  std::string text = kJob;
  const auto set = [&](const std::string& piece, const std::string& value) {
    text.replace(text.find(piece), piece.size(), value);
  };
  set("hidden_size: 128", "hidden_size: 131072");
  set("num_hidden_layers: 8", "num_hidden_layers: 4096");
  EXPECT_EQ(refusal(text), "line 4: model: expected at most 4398046511104 parameters, found 2.82e+14");

  set("num_hidden_layers: 4096", "num_hidden_layers: 8");
  set("max_position_embeddings: 128", "max_position_embeddings: 1048576");
  set("sequence_length: 128", "sequence_length: 1048576");
  set("microbatch_size: 4", "microbatch_size: 1");
  EXPECT_TRUE(parse_job_spec(text).ok()) << parse_job_spec(text).status();
  set("global_batch_size: 32", "global_batch_size: 65536");
  EXPECT_THAT(refusal(text), HasSubstr("line 20: train.global_batch_size: expected at most 1.15e+18 bytes of "
                                       "activations in a step, found "));
}

TEST(ParseJobSpec, a_program_too_long_to_send_is_refused) {
  std::string text = kJob;
  const auto set = [&](const std::string& piece, const std::string& value) {
    text.replace(text.find(piece), piece.size(), value);
  };
  set("num_hidden_layers: 8", "num_hidden_layers: 256");
  set("pipeline: 4", "pipeline: 32");
  set("stages_per_rank: 2", "stages_per_rank: 8");
  set("global_batch_size: 32", "global_batch_size: 262144");
  EXPECT_EQ(refusal(text),
            "line 28: parallel.stages_per_rank: expected at most 131072 forwards a rank and 1048576 a step "
            "(stages x microbatches), found 524288 and 16777216");
}

}  // namespace
}  // namespace penstock::plan
