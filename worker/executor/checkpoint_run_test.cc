// Checkpoints that executors write, and that executors of other shapes go on from: no bit of the training may know.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/checkpoint/directory.h"
#include "base/safetensors/testing/written.h"
#include "plan/spec/parameters.h"
#include "plan/spec/schedule_source.h"
#include "worker/executor/testing/fake_daemon.h"

namespace penstock::worker {
namespace {

using penstock::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Shape {
  std::string schedule = "1f1b";
  int ranks = 1;
  int stages_per_rank = 1;
  std::string split = "auto";
  std::string model{};  // keys added
  int steps = 6;
  std::string dtype = "float32";
  std::string parallel{};  // keys added
  double clip = 1.0;

  friend void PrintTo(const Shape& shape, std::ostream* out) {
    *out << shape.schedule << " P=" << shape.ranks << " V=" << shape.stages_per_rank << " " << shape.split;
  }
};

constexpr const char* kEverything = ", tie_word_embeddings: true, qk_norm: true, hidden_dropout: 0.1";

// A folder of text and checkpoints; forked executors leave it alone.
class CheckpointRun : public ::testing::TestWithParam<Shape> {
 protected:
  CheckpointRun() {
    std::string text;
    for (int i = 0; i < 600; ++i) text += fmt::format("line {} of the water book; ", i % 17);
    folder_.write("text.txt", text);
    folder_.write("checkpoints/.attempt-1", "");
  }

  std::string directory() const { return folder_.path("checkpoints"); }

  std::string job_file(const Shape& shape) const {
    return fmt::format(R"(name: tiny
model: {{vocab_size: 256, hidden_size: 32, num_hidden_layers: 6, num_attention_heads: 4, num_key_value_heads: 2,
         intermediate_size: 48, max_position_embeddings: 32{}}}
data: {{source: {}, sequence_length: 16}}
train: {{steps: {}, global_batch_size: 8, microbatch_size: 2, dtype: {},
         optimizer: {{name: adamw, lr: 1e-2, clip_grad_norm: {}}}, lr_schedule: {{name: cosine, warmup_steps: 2}}}}
parallel: {{pipeline: {}, stages_per_rank: {}, schedule: {}, split: {}{}}}
device: {{kind: cpu, threads: 1}}
checkpoint: {{every: 3}}
)",
                       shape.model, folder_.path("text.txt"), shape.steps, shape.dtype, shape.clip,
                       shape.ranks, shape.stages_per_rank, shape.schedule, shape.split, shape.parallel);
  }

  std::vector<ExecutorOutcome> run(const Shape& shape, bool writes, const std::string& load_from = "",
                                   int64_t first_step = 0) const {
    const std::string yaml = job_file(shape);
    const plan::JobSpec job = plan::parse_job_spec(yaml).value();
    const bool post_validated = job.parallel.optimizer_step == "post-validated";
    const plan::LoweredProgram lowered =
        plan::lower(plan::compute_program(job).value(),
                    {.step_rule = post_validated ? plan::StepRule::PostValidated : plan::StepRule::Barrier})
            .value();
    std::vector<ExecutorAssignment> assignments;
    for (const plan::RankProgram& of_rank : lowered.ranks) {
      Assignment assignment;
      assignment.attempt = {"tiny", 1, 7};
      assignment.rank = of_rank.rank;
      assignment.spec_yaml = yaml;
      assignment.split = job.parallel.split;
      assignment.program = of_rank;
      assignment.first_step = first_step;
      assignment.rank_hosts.assign(static_cast<size_t>(shape.ranks), "here");
      if (writes) assignment.checkpoints = {directory(), ".attempt-1"};
      assignment.load_from = load_from;
      assignments.push_back({std::move(assignment), "127.0.0.1", "worker"});
    }
    return FakeDaemon(assignments).serve();
  }

  static std::vector<double> losses_of(const std::vector<ExecutorOutcome>& outcomes) {
    std::vector<double> losses;
    for (const ExecutorOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.exit_code, 0) << (outcome.failed ? outcome.failed->reason : "");
      for (const StepReport& report : outcome.steps) {
        if (report.loss) losses.push_back(*report.loss);
      }
    }
    return losses;
  }

  static std::map<int, Digest> digests_of(const std::vector<ExecutorOutcome>& outcomes) {
    std::map<int, Digest> digests;
    for (const ExecutorOutcome& outcome : outcomes) {
      if (!outcome.finished) continue;
      for (const ParameterDigest& digest : outcome.finished->digests)
        digests[digest.parameter] = digest.digest;
    }
    return digests;
  }

  std::vector<ExpectedTensor> expected(const Shape& shape) const {
    std::vector<ExpectedTensor> weights;
    for (const auto& spec : plan::model_parameters(plan::parse_job_spec(job_file(shape))->model))
      weights.push_back({spec.name, spec.shape});
    return checkpoint_tensors(weights);
  }

  // What the coordinator does once every rank has written.
  StatusOr<std::string> commit(const Shape& shape, int64_t step) const {
    const std::string draft = draft_name("tiny", 1, step);
    CheckpointManifest all;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const auto part =
          parse_manifest(folder_.read("checkpoints/" + draft + "/" + part_name(rank, shape.ranks)));
      if (!part.ok()) return part.status();
      if (rank == 0) {
        all = *part;
      } else {
        all.shards.insert(all.shards.end(), part->shards.begin(), part->shards.end());
      }
    }
    return commit_draft(directory(), draft, all, expected(shape));
  }

  TemporaryFolder folder_{"penstock_checkpoint_run"};
};

TEST_F(CheckpointRun, writing_changes_no_bit_and_is_in_the_memory_account) {
  const Shape shape{.schedule = "interleaved-1f1b", .ranks = 2, .stages_per_rank = 2};
  const auto without = run(shape, false);
  const auto written = run(shape, true);
  EXPECT_THAT(losses_of(without), SizeIs(6));
  EXPECT_EQ(losses_of(written), losses_of(without));
  EXPECT_EQ(digests_of(written), digests_of(without));
  for (const ExecutorOutcome& outcome : written) {
    ASSERT_THAT(outcome.checkpoints, SizeIs(2));  // after 3 and after 6 steps
    EXPECT_EQ(outcome.checkpoints[0].step, 3);
    EXPECT_EQ(outcome.checkpoints[1].step, 6);
    EXPECT_EQ(outcome.checkpoints[1].problem, "");
    const auto& memory = outcome.steps.back().memory;
    const auto of = [&](const std::string& kind) {
      for (const MemoryKind& one : memory) {
        if (one.kind == kind) return one.bytes_peak;
      }
      return int64_t{-1};
    };
    EXPECT_EQ(of("snapshot"), of("parameters") + of("optimizer"));
  }
}

TEST_F(CheckpointRun, part_that_cannot_be_written_is_told_and_the_training_goes_on) {
  const Shape shape{.ranks = 2};
  folder_.write("checkpoints/" + draft_name("tiny", 1, 3), "in the way");
  const auto outcomes = run(shape, true);
  EXPECT_THAT(losses_of(outcomes), SizeIs(6));
  for (const ExecutorOutcome& outcome : outcomes) {
    ASSERT_THAT(outcome.checkpoints, SizeIs(2));
    EXPECT_THAT(outcome.checkpoints[0].problem, HasSubstr(draft_name("tiny", 1, 3)));
    EXPECT_EQ(outcome.checkpoints[1].problem, "");
  }
  EXPECT_TRUE(commit(shape, 6).ok());
}

TEST_F(CheckpointRun, damaged_one_is_refused_by_the_rank_that_reads_it) {
  const Shape shape;
  losses_of(run(shape, true));
  const auto path = commit(shape, 3);
  ASSERT_TRUE(path.ok()) << path.status();
  const std::string shard = "checkpoints/step-000000003/rank-00000-of-00001.safetensors";
  std::string bytes = folder_.read(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder_.write(shard, bytes);
  const auto outcomes = run(shape, false, *path, 3);
  ASSERT_TRUE(outcomes[0].failed.has_value());
  EXPECT_THAT(outcomes[0].failed->reason, HasSubstr(shard));
  EXPECT_THAT(outcomes[0].failed->reason, HasSubstr("tensor lm_head.weight at offset"));
}

// Saved on four ranks of two stages, in the middle of a run with every random stream in use.
TEST_P(CheckpointRun, run_that_goes_on_elsewhere_has_the_bits_of_the_one_that_was_not_interrupted) {
  Shape saver{.schedule = "interleaved-1f1b", .ranks = 4, .stages_per_rank = 2};
  saver.model = GetParam().model;
  saver.dtype = GetParam().dtype;
  const auto whole = run(saver, true);
  const std::vector<double> losses = losses_of(whole);
  ASSERT_THAT(losses, SizeIs(6));
  const auto path = commit(saver, 3);
  ASSERT_TRUE(path.ok()) << path.status();

  const auto rest = run(GetParam(), false, *path, 3);
  EXPECT_EQ(losses_of(rest), std::vector<double>(losses.begin() + 3, losses.end()));
  EXPECT_EQ(digests_of(rest), digests_of(whole));

  // Nothing left to do: what is loaded is what was saved.
  Shape loaded = GetParam();
  loaded.steps = 3;
  const auto at_load = digests_of(run(loaded, false, *path, 3));
  const Checkpoint checkpoint = *Checkpoint::open(*path);
  for (const auto& spec : plan::model_parameters(plan::parse_job_spec(job_file(saver))->model))
    EXPECT_EQ(at_load.at(spec.index), checkpoint.find(spec.name)->digest) << spec.name;
}

INSTANTIATE_TEST_SUITE_P(Elsewhere, CheckpointRun,
                         ::testing::Values(Shape{.ranks = 2, .model = kEverything},
                                           Shape{.ranks = 1, .model = kEverything}, Shape{.ranks = 8},
                                           Shape{.schedule = "gpipe", .ranks = 4, .model = kEverything},
                                           Shape{.ranks = 2,
                                                 .split = "[[embedding], [0, 1, 2, 3, 4, 5, head]]",
                                                 .model = kEverything},
                                           Shape{.schedule = "interleaved-1f1b",
                                                 .ranks = 2,
                                                 .stages_per_rank = 2,
                                                 .split = "[[embedding, 0, 1, 2], [3], [4], [5, head]]",
                                                 .dtype = "bfloat16"}));

// Each way to train has something of its own between its steps: two replicas, a step that may be taken back, older
// versions of the weights, experts, memory that peers write into.
class CheckpointOf : public CheckpointRun {};

TEST_P(CheckpointOf, every_way_to_train_goes_on_with_its_own_bits) {
  const Shape& shape = GetParam();
  const auto whole = run(shape, true);
  losses_of(whole);
  const auto path = commit(shape, 3);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto rest = run(shape, false, *path, 3);
  EXPECT_EQ(digests_of(rest), digests_of(whole));
  ASSERT_EQ(rest.size(), whole.size());
  for (size_t rank = 0; rank < rest.size(); ++rank) {
    ASSERT_THAT(rest[rank].steps, SizeIs(3));
    ASSERT_THAT(whole[rank].steps, SizeIs(6));
    for (size_t step = 0; step < 3; ++step) {
      EXPECT_EQ(rest[rank].steps[step].loss, whole[rank].steps[3 + step].loss);
      EXPECT_EQ(rest[rank].steps[step].gradient_norm, whole[rank].steps[3 + step].gradient_norm);
    }
  }
}

constexpr const char* kExperts = ", moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16}";

INSTANTIATE_TEST_SUITE_P(
    Ways, CheckpointOf,
    ::testing::Values(
        Shape{.schedule = "dualpipe", .ranks = 4, .model = ", tie_word_embeddings: true"},
        Shape{.schedule = "chimera", .ranks = 2},
        Shape{.schedule = "zb-h2", .ranks = 3, .parallel = ", optimizer_step: post-validated"},
        Shape{.schedule = "zb-h2", .ranks = 3, .parallel = ", optimizer_step: post-validated", .clip = 1e-3},
        Shape{.schedule = "pipedream", .ranks = 3, .parallel = ", flush_every: 3", .clip = 0},
        Shape{.schedule = "pipedream-2bw", .ranks = 2, .parallel = ", flush_every: 3", .clip = 0},
        Shape{.schedule = "zb-v", .ranks = 2, .stages_per_rank = 2, .model = kExperts},
        Shape{.schedule = "1f1b", .ranks = 4, .dtype = "bfloat16", .parallel = ", p2p: {mode: one-sided}"}));

}  // namespace
}  // namespace penstock::worker
