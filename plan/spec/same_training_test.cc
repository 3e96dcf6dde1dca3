#include "plan/spec/same_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

constexpr const char* kJob =
    "name: a\n"
    "model: {hidden_size: 8, vocab_size: 256, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 16,\n"
    "        max_position_embeddings: 16, rope_theta: 1e4}\n"
    "data: {source: [a.txt, b.txt], sequence_length: 16}\n"
    "train:\n"
    "  steps: 100\n"
    "  global_batch_size: 8\n"
    "  microbatch_size: 1\n"
    "  optimizer: {lr: 1e-3, clip_grad_norm: 0}\n"
    "parallel: {pipeline: 4}\n";

std::string replaced(std::string text, const std::string& piece, const std::string& replacement) {
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), replacement);
}
std::string with(const std::string& piece, const std::string& replacement) {
  return replaced(kJob, piece, replacement);
}

JobSpec parsed(const std::string& text) {
  const StatusOr<JobSpec> spec = parse_job_spec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(JobSpec{});
}
std::string difference(const std::string& before, const std::string& after) {
  return message(check_same_training(parsed(before), parsed(after)));
}
std::string difference(const std::string& after) {
  return difference(kJob, after);
}

TEST(SameTraining, cut_of_the_model_may_change_and_so_may_the_order_of_keys) {
  EXPECT_EQ(difference(kJob), "");
  EXPECT_EQ(difference(with("pipeline: 4", "pipeline: 2, schedule: gpipe")), "");
  EXPECT_EQ(difference(with("name: a", "name: b")), "");
  EXPECT_EQ(difference(with("hidden_size: 8, vocab_size: 256", "vocab_size: 256, hidden_size: 8")), "");
}

// The job of a schedule without a flush.
std::string stale(const std::string& parallel, const std::string& extra = "") {
  return with("pipeline: 4", "schedule: pipedream, " + parallel) + extra;
}

TEST(SameTraining, what_the_weights_of_a_schedule_without_a_flush_follow_from_stays) {
  EXPECT_EQ(
      difference(stale("pipeline: 4")),
      "line 10: parallel.schedule: expected 1f1b, as the job has it, found pipedream; weight versions follow from it");
  EXPECT_EQ(
      difference(stale("pipeline: 4"), kJob),
      "parallel.schedule: expected pipedream, as the job has it, found 1f1b (the default); weight versions follow "
      "from it");
  const std::string said = stale("pipeline: 4, flush_every: 5");
  EXPECT_EQ(difference(said, said), "");
  EXPECT_EQ(
      difference(said, stale("pipeline: 2, flush_every: 5")),
      "line 10: parallel.pipeline: expected 4, as the job has it, found 2; weight versions follow from it");
  EXPECT_EQ(
      difference(said, stale("pipeline: 4")),
      "parallel.flush_every: expected 5, as the job has it, found 50 (the default); weight versions follow from it");
}

TEST(SameTraining, default_of_flush_every_that_follows_from_the_checkpoints_stays) {
  const std::string every_20 = stale("pipeline: 4", "checkpoint: {every: 20}\n");
  EXPECT_EQ(
      difference(every_20, stale("pipeline: 4", "checkpoint: {every: 50}\n")),
      "parallel.flush_every: expected 20, as the job has it, found 50 (the default); weight versions follow from it");
  EXPECT_EQ(difference(every_20, stale("pipeline: 4, flush_every: 20", "checkpoint: {every: 100}\n")), "")
      << "said or by default, it is the same";
}

TEST(SameTraining, microbatches_of_a_schedule_without_a_flush_stay) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    const auto cut = [&](const std::string& parallel) {
      return with("pipeline: 4", fmt::format("schedule: {}, pipeline: 2, {}", schedule, parallel));
    };
    EXPECT_EQ(
        difference(cut("data: 1"), cut("data: 2")),
        "line 10: parallel.data: expected 8 microbatches of each pipeline in a step, as the job has it, found 4 with "
        "expert 1 and data 2; weight versions follow from their number");
    EXPECT_EQ(difference(cut("data: 2"), cut("data: 2, shard_optimizer: true")), "");
  }
}

TEST(SameTraining, split_stays_where_stages_differ_in_their_weight_versions) {
  const auto cut = [](const std::string& schedule, const std::string& split) {
    return with("pipeline: 4", "pipeline: 2, schedule: " + schedule + ", split: " + split);
  };
  const std::string even = "[[embedding, 0, 1], [2, 3, head]]", uneven = "[[embedding, 0, 1, 2], [3, head]]";
  EXPECT_EQ(
      difference(cut("pipedream", even), cut("pipedream", uneven)),
      "line 10: parallel.split: expected [embedding, 0, 1], [2, 3, head], as the job has it, found [embedding, 0, 1, "
      "2], [3, head]; weight versions follow from it");
  EXPECT_EQ(difference(cut("pipedream-2bw", even), cut("pipedream-2bw", uneven)), "")
      << "all lag by one step";
  EXPECT_EQ(difference(cut("1f1b", even), cut("1f1b", uneven)), "");
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
  EXPECT_TRUE(check_same_training(before, after).ok());
  EXPECT_EQ(other_sums(before, after), "parallel.expert 1 in place of 2, parallel.data 2 in place of 1");
  EXPECT_EQ(other_sums(before, spec("pipeline: 4, expert: 2, shard_optimizer: true", "recompute: full\n")),
            "");
  EXPECT_EQ(other_sums(before, spec("pipeline: 2, expert: 2", "two_batch_overlap: true\n")),
            "two_batch_overlap");
  EXPECT_EQ(other_sums(spec("pipeline: 2", "two_batch_overlap: true\n"), spec("pipeline: 2")),
            "no two_batch_overlap");
}

TEST(SameTraining, split_alone_differs_where_all_that_layers_cost_is_the_same) {
  const JobSpec before = parsed(kJob);
  const auto alone = [&](const std::string& text) { return differ_by_split_alone(before, parsed(text)); };
  EXPECT_TRUE(alone(kJob));
  EXPECT_TRUE(alone(with("pipeline: 4", "split: [[embedding, 0, 1], [2], [3], [head]], pipeline: 4")));
  EXPECT_TRUE(alone(with("name: a", "name: b")));
  EXPECT_TRUE(alone(std::string(kJob) + "checkpoint: {every: 10}\ntrace: {every: 7}\nmemory_budget: 1GiB\n"));
  EXPECT_TRUE(alone(std::string(kJob) + "rebalance: apply\n"));
  EXPECT_FALSE(alone(std::string(kJob) + "recompute: full\n"));
  EXPECT_FALSE(alone(std::string(kJob) + "device: {kind: cpu, threads: 2}\n"));
  for (const char* parallel : {"pipeline: 2", "pipeline: 4, schedule: gpipe", "pipeline: 4, data: 2"})
    EXPECT_FALSE(alone(with("pipeline: 4", parallel))) << parallel;
}

TEST(SameTraining, bits_depend_on_the_split_where_stages_differ_in_their_weight_versions) {
  for (const char* schedule : {"1f1b", "zb-h1", "pipedream-2bw"})
    EXPECT_TRUE(keeps_bits_under_any_split(
        parsed(with("pipeline: 4", fmt::format("pipeline: 4, schedule: {}", schedule)))));
  EXPECT_FALSE(keeps_bits_under_any_split(parsed(with("pipeline: 4", "pipeline: 4, schedule: pipedream"))));
}

TEST(SameTraining, schedule_that_adds_in_an_order_of_its_own_is_told) {
  const auto cut = [](const std::string& schedule) {
    return parsed(with("pipeline: 4", "pipeline: 4, schedule: " + schedule));
  };
  EXPECT_EQ(other_sums(cut("1f1b"), cut("chimera")), "parallel.schedule chimera in place of 1f1b");
  EXPECT_EQ(other_sums(cut("chimera"), cut("gpipe")), "parallel.schedule gpipe in place of chimera");
  EXPECT_EQ(other_sums(cut("1f1b"), cut("gpipe")), "");
  EXPECT_EQ(other_sums(cut("chimera"), cut("chimera")), "");
  JobSpec file = cut("1f1b");
  file.parallel.schedule = "file:/a.json";
  file.parallel.program = {{Action{}}};
  EXPECT_EQ(other_sums(cut("1f1b"), file), "parallel.schedule file:/a.json in place of 1f1b");
  EXPECT_EQ(other_sums(file, file), "");
  JobSpec edited = file;
  edited.parallel.program = {{Action{}, Action{}}};
  EXPECT_EQ(other_sums(file, edited), "another program of parallel.schedule file:/a.json");
}

TEST(SameTraining, overlap_of_halves_stays_where_experts_drop_what_is_too_much) {
  const std::string pairs = with("microbatch_size: 1", "microbatch_size: 2");
  const std::string experts =
      "rope_theta: 1e4, moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8";
  const std::string dropping = replaced(pairs, "rope_theta: 1e4", experts + ", capacity_factor: 1.5}");
  const std::string dropless = replaced(pairs, "rope_theta: 1e4", experts + "}");
  const std::string overlap = "two_batch_overlap: true\n";
  EXPECT_EQ(
      difference(dropping, dropping + overlap),
      "line 11: two_batch_overlap: expected false, as the job has it, found true; with model.moe.capacity_factor "
      "each half drops tokens of its own");
  EXPECT_THAT(difference(dropping + overlap, dropping),
              testing::HasSubstr("two_batch_overlap: expected true, as the job has it, found false"));
  EXPECT_EQ(difference(dropping + overlap, dropping + overlap), "");
  EXPECT_EQ(difference(dropless, dropless + overlap), "");
}

TEST(SameTraining, kind_of_device_and_folder_of_checkpoints_stay) {
  EXPECT_EQ(difference(std::string(kJob) +
                       "device: {kind: emulated, costs: {layers: {embedding: {forward: 1, backward: 2}, "
                       "block: {forward: 1, backward: 2}, head: {forward: 1, backward: 2}}}}\n"),
            "line 11: device.kind: expected cpu, as the job has it, found emulated");
  EXPECT_EQ(difference(std::string(kJob) + "checkpoint: {every: 5, directory: /other}\n"),
            "line 11: checkpoint.directory: expected the coordinator's, as the job has it, found /other");
  EXPECT_EQ(difference(std::string(kJob) + "checkpoint: {every: 5}\ndevice: {kind: cpu}\n"), "");
}

TEST(SameTraining, first_difference_is_told_with_its_line) {
  EXPECT_EQ(difference(with("lr: 1e-3", "lr: 1e-2")),
            "line 9: train.optimizer.lr: expected 1e-3, as the job has it, found 1e-2");
  EXPECT_EQ(difference(with("  steps: 100\n", "  steps: 100\n  seed: 2\n")),
            "line 7: train.seed: expected no such key, as the job has it, found 2");
  EXPECT_EQ(difference(with("b.txt", "c.txt")),
            "line 4: data.source[1]: expected b.txt, as the job has it, found c.txt");
  EXPECT_EQ(difference(with("[a.txt, b.txt]", "a.txt")),
            "line 4: data.source: expected a list of 2, as the job has it, found a.txt");
  EXPECT_EQ(difference(with(", rope_theta: 1e4", "")),
            "line 2: model.rope_theta: expected 1e4, as the job has it, found no such key");
}

}  // namespace
}  // namespace penstock::plan
