#include "plan/spec/same_training.h"

#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

constexpr const char* kJob =
    "name: a\n"
    "model: {hidden_size: 8, from: \"/w\"}\n"
    "data: {source: [a.txt, b.txt], sequence_length: 16}\n"
    "train:\n"
    "  steps: 10\n"
    "  optimizer: {lr: 1e-3}\n"
    "parallel: {pipeline: 4}\n";

std::string with(const std::string& piece, const std::string& replacement) {
  std::string text = kJob;
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), replacement);
}

std::string difference(const std::string& after) {
  return message(check_same_training(kJob, after));
}

TEST(SameTraining, cut_of_the_model_may_change_and_so_may_the_order_of_keys) {
  EXPECT_EQ(difference(kJob), "");
  EXPECT_EQ(difference(with("pipeline: 4", "pipeline: 2, schedule: gpipe")), "");
  EXPECT_EQ(difference(with("name: a", "name: b")), "");
  EXPECT_EQ(difference(with("hidden_size: 8, from: \"/w\"", "from: \"/w\", hidden_size: 8")), "");
}

TEST(SameTraining, what_the_weights_of_a_schedule_without_a_flush_follow_from_stays) {
  EXPECT_EQ(difference(with("pipeline: 4", "pipeline: 4, schedule: pipedream")),
            "line 7: parallel.schedule: expected 1f1b, as the job has it, found pipedream");
  const std::string stale = with("pipeline: 4", "pipeline: 4, schedule: pipedream, flush_every: 5");
  EXPECT_EQ(message(check_same_training(stale, stale)), "");
  EXPECT_EQ(message(check_same_training(
                stale, with("pipeline: 4", "pipeline: 2, schedule: pipedream, flush_every: 5"))),
            "line 7: parallel.pipeline: expected 4, as the job has it, found 2");
  EXPECT_EQ(message(check_same_training(stale, with("pipeline: 4", "pipeline: 4, schedule: pipedream"))),
            "line 7: parallel.flush_every: expected 5, as the job has it, found its default");
  EXPECT_EQ(message(check_same_training(stale, kJob)),
            "line 7: parallel.schedule: expected pipedream, as the job has it, found 1f1b");
}

TEST(SameTraining, what_changes_the_order_of_sums_is_allowed_and_told) {
  const auto spec = [](const std::string& parallel, const std::string& extra = "") {
    return *parse_job_spec(
        "name: a\n"
        "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 16,\n"
        "        max_position_embeddings: 8, moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8}}\n"
        "data: {source: /a.txt, sequence_length: 8}\n"
        "train: {steps: 10, global_batch_size: 16, microbatch_size: 2}\n"
        "parallel: {" +
        parallel + "}\n" + extra);
  };
  const JobSpec before = spec("pipeline: 2, expert: 2");
  const JobSpec after = spec("pipeline: 4, data: 2, schedule: gpipe", "recompute: full\n");
  EXPECT_TRUE(check_same_training(before.yaml, after.yaml).ok());
  EXPECT_EQ(other_sums(before, after), "parallel.expert 1 in place of 2, parallel.data 2 in place of 1");
  EXPECT_EQ(other_sums(before, spec("pipeline: 4, expert: 2, shard_optimizer: true", "recompute: full\n")),
            "");
  EXPECT_EQ(other_sums(before, spec("pipeline: 2, expert: 2", "two_batch_overlap: true\n")),
            "two_batch_overlap");
  EXPECT_EQ(other_sums(spec("pipeline: 2", "two_batch_overlap: true\n"), spec("pipeline: 2")),
            "no two_batch_overlap");
}

TEST(SameTraining, kind_of_device_and_folder_of_checkpoints_stay) {
  EXPECT_EQ(difference(std::string(kJob) + "device: {kind: emulated}\n"),
            "line 8: device.kind: expected cpu, as the job has it, found emulated");
  EXPECT_EQ(difference(std::string(kJob) + "checkpoint: {every: 5, directory: /other}\n"),
            "line 8: checkpoint.directory: expected the coordinator's, as the job has it, found /other");
  EXPECT_EQ(difference(std::string(kJob) + "checkpoint: {every: 5}\ndevice: {kind: cpu}\n"), "");
}

TEST(SameTraining, first_difference_is_told_with_its_line) {
  EXPECT_EQ(difference(with("lr: 1e-3", "lr: 1e-2")),
            "line 6: train.optimizer.lr: expected 1e-3, as the job has it, found 1e-2");
  EXPECT_EQ(difference(with("  steps: 10\n", "  steps: 10\n  seed: 2\n")),
            "line 6: train.seed: expected no such key, as the job has it, found 2");
  EXPECT_EQ(difference(with("b.txt", "c.txt")),
            "line 3: data.source[1]: expected b.txt, as the job has it, found c.txt");
  EXPECT_EQ(difference(with("[a.txt, b.txt]", "a.txt")),
            "line 3: data.source: expected a list of 2, as the job has it, found a.txt");
  EXPECT_EQ(difference(with(", from: \"/w\"", "")),
            "line 2: model.from: expected \"/w\", as the job has it, found no such key");
}

}  // namespace
}  // namespace penstock::plan
