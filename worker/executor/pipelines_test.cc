// Pipelines side by side: executors of P x M_E x D_E ranks against one process with the same microbatches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/executor/testing/side_by_side.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

class SideBySide : public ::testing::TestWithParam<Shape> {};

TEST_P(SideBySide, has_the_bits_of_one_process_with_the_same_microbatches) {
  const Result found = train(GetParam());
  const Result& expected = reference_of(GetParam());
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.digests, expected.digests);
  if (GetParam().is_asynchronous()) return;  // no rank knows the norm of all
  EXPECT_EQ(found.norms, expected.norms);
}

INSTANTIATE_TEST_SUITE_P(
    Dense, SideBySide,
    ::testing::Values(
        Shape{.data = 2}, Shape{.data = 3}, Shape{.pipeline = 2, .data = 2}, Shape{.pipeline = 4, .data = 2},
        Shape{.pipeline = 2, .data = 3, .split = "[[embedding, 0, 1], [2, 3, 4, 5, head]]"},
        Shape{.pipeline = 2, .data = 3, .split = "[[embedding, 0, 1, 2, 3, 4], [5, head]]"},
        Shape{.pipeline = 2, .data = 2, .schedule = "interleaved-1f1b", .stages_per_rank = 2},
        Shape{.pipeline = 4, .data = 2, .schedule = "zb-h1"},
        Shape{.pipeline = 2, .data = 2, .schedule = "zb-v", .stages_per_rank = 2},
        Shape{.pipeline = 2, .data = 2, .parallel = ", p2p: {mode: one-sided}"},
        Shape{.pipeline = 2, .data = 2, .dtype = "bfloat16"},
        // The update at once drains the pipeline: no weight is old.
        Shape{.pipeline = 2, .data = 2, .schedule = "pipedream", .parallel = ", flush_every: 1", .clip = 0},
        Shape{.pipeline = 3, .data = 2, .schedule = "zb-h2", .parallel = ", optimizer_step: post-validated"},
        Shape{.pipeline = 3,
              .data = 2,
              .schedule = "zb-h2",
              .parallel = ", optimizer_step: post-validated",
              .clip = 1e-3}));

// 16 sequences in microbatches of 3: six of them, the last short. Over four pipelines two have nothing in their second.
INSTANTIATE_TEST_SUITE_P(
    ShortLastMicrobatches, SideBySide,
    ::testing::Values(Shape{.data = 2, .microbatch_size = 3}, Shape{.data = 4, .microbatch_size = 3},
                      Shape{.pipeline = 2, .data = 4, .schedule = "gpipe", .microbatch_size = 3},
                      Shape{.pipeline = 2, .data = 3, .model = kEverything, .microbatch_size = 5}));

// Gradients of a tied matrix must be whole before embedding and head are added, with the two on one rank and on two.
INSTANTIATE_TEST_SUITE_P(
    TiedEmbeddings, SideBySide,
    ::testing::Values(
        Shape{.data = 2, .model = kEverything}, Shape{.pipeline = 2, .data = 2, .model = kEverything},
        Shape{.pipeline = 2, .data = 2, .schedule = "zb-v", .stages_per_rank = 2, .model = kEverything},
        Shape{.pipeline = 4, .data = 3, .model = kEverything},
        Shape{.pipeline = 2,
              .data = 2,
              .split = "[[embedding], [0, 1, 2, 3, 4, 5, head]]",
              .parallel = ", shard_optimizer: true",
              .model = kEverything}));

INSTANTIATE_TEST_SUITE_P(
    ShardedOptimizer, SideBySide,
    ::testing::Values(
        Shape{.parallel = ", shard_optimizer: true"}, Shape{.data = 2, .parallel = ", shard_optimizer: true"},
        Shape{.pipeline = 2, .data = 3, .parallel = ", shard_optimizer: true"},
        // A stage of the embedding alone hung in the gradient norm (deepspeedai/DeepSpeed issue 1522): two ranks have no moments.
        Shape{.pipeline = 2,
              .data = 3,
              .split = "[[embedding], [0, 1, 2, 3, 4, 5, head]]",
              .parallel = ", shard_optimizer: true"},
        Shape{.pipeline = 2,
              .data = 2,
              .schedule = "interleaved-1f1b",
              .stages_per_rank = 2,
              .parallel = ", shard_optimizer: true, p2p: {mode: one-sided}",
              .model = kExperts,
              .dtype = "bfloat16"}));

INSTANTIATE_TEST_SUITE_P(
    ReplicatedExperts, SideBySide,
    ::testing::Values(Shape{.data = 3, .model = kExperts}, Shape{.pipeline = 2, .data = 2, .model = kExperts},
                      // A stage without experts beside one with them.
                      Shape{.pipeline = 2,
                            .data = 2,
                            .split = "[[embedding, 0], [1, 2, 3, 4, 5, head]]",
                            .model = kExperts},
                      Shape{.pipeline = 2, .data = 3, .model = kExperts, .microbatch_size = 3}));

TEST(Pipelines, with_two_replicas_of_every_stage_train_one_model) {
  // Every parameter is then on four ranks: in two pipelines, twice in each.
  for (const bool sharded : {false, true}) {
    for (const char* schedule : {"dualpipe", "chimera"}) {
      SCOPED_TRACE(fmt::format("{} {}", schedule, sharded));
      const Shape shape{.pipeline = 2,
                        .data = 2,
                        .schedule = schedule,
                        .parallel = sharded ? ", shard_optimizer: true" : "",
                        .model = kEverything};
      const Result found = train(shape);
      const Result& expected = reference_of(shape);
      EXPECT_LE(largest_difference(found.losses, expected.losses), 1e-6);
      EXPECT_LE(largest_difference(found.norms, expected.norms), 1e-4);
      EXPECT_EQ(found.digests.size(), expected.digests.size());
    }
  }
}

TEST(Pipelines, that_compute_with_older_weights_add_up_at_every_update) {
  // No rank waits for a norm, but those with one stage do for each other: replicas that parted would show in the digests.
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    Shape shape{.pipeline = 3, .data = 2, .schedule = schedule, .parallel = ", flush_every: 2", .clip = 0};
    const Result whole = train(shape);
    EXPECT_NE(whole.digests, reference_of(shape).digests) << "there are older weights in it";
    shape.parallel += ", shard_optimizer: true";
    const Result sharded = train(shape);
    EXPECT_EQ(sharded.digests, whole.digests);
    EXPECT_EQ(sharded.losses, whole.losses);
  }
}

TEST(Pipelines, validate_the_microbatches_of_one_pipeline_between_them) {
  // Five microbatches over two pipelines: three each, the last of which is nothing.
  Shape shape{.pipeline = 2};
  shape.extra =
      fmt::format("validation: {{source: {}, every: 2, microbatches: 5}}\n", folder().path("text.txt"));
  shape.steps = 2;
  // Before anything is learnt differently: the weights after two steps of the same microbatches differ in rounding.
  const Result one = train(shape);
  shape.data = 2;
  const Result two = train(shape);
  ASSERT_EQ(one.validation.size(), 1u);
  ASSERT_EQ(two.validation.size(), 1u);
  EXPECT_NEAR(two.validation.begin()->second, one.validation.begin()->second,
              1e-5 * one.validation.begin()->second);
  Shape without = shape;
  without.extra = "";
  EXPECT_EQ(train(without).digests, two.digests);
}

TEST(Pipelines, a_lost_rank_ends_all_of_them_and_its_group_is_named) {
  FakeDaemon daemon(assignments_of({.pipeline = 2, .data = 2, .steps = 90}));
  TimePoint killed_at{};
  const auto outcomes = daemon.serve([&](const StepReport& report) {
    if (killed_at != TimePoint{} || report.step < 2) return;
    daemon.kill(3);
    killed_at = SystemClock().now();
  });
  EXPECT_EQ(outcomes[3].signal, SIGKILL);
  for (const size_t survivor : {0u, 1u, 2u}) {
    EXPECT_EQ(outcomes[survivor].exit_code, 1);
    ASSERT_TRUE(outcomes[survivor].failed.has_value());
    EXPECT_LT(outcomes[survivor].failed_at - killed_at, 3s);
    EXPECT_THAT(outcomes[survivor].failed->reason, HasSubstr("group "));
  }
  // The two that share a group with it.
  EXPECT_THAT(outcomes[1].failed->reason + outcomes[2].failed->reason, HasSubstr("was lost"));
}

TEST(Pipelines, that_were_told_different_programs_refuse_each_other) {
  // Both are whole in themselves: the ranks would meet in sums of other stages' gradients, or never.
  auto assignments = assignments_of({.pipeline = 2, .data = 2});
  const auto others = assignments_of({.pipeline = 2, .data = 2, .schedule = "gpipe"});
  for (const size_t rank : {1u, 3u}) assignments[rank].assignment.program = others[rank].assignment.program;
  std::string reasons;
  for (const ExecutorOutcome& outcome : FakeDaemon(assignments).serve()) {
    ASSERT_TRUE(outcome.failed.has_value());
    EXPECT_FALSE(outcome.ready.has_value());
    reasons += outcome.failed->reason;
  }
  EXPECT_THAT(
      reasons,
      HasSubstr("ranks 0 and 1 have the same stages in pipelines side by side, and were told different"));
}

TEST(Pipelines, whose_hosts_hold_different_text_refuse_each_other) {
  // Each pipeline agrees in itself.
  auto assignments = assignments_of({.pipeline = 2, .data = 2});
  folder().write("elsewhere/text.txt", folder().read("text.txt") + "and a line more");
  for (const size_t rank : {1u, 3u}) {
    std::string& yaml = assignments[rank].assignment.spec_yaml;
    const std::string path = folder().path("text.txt");
    yaml.replace(yaml.find(path), path.size(), folder().path("elsewhere/text.txt"));
  }
  const auto outcomes = FakeDaemon(assignments).serve();
  std::string reasons;
  for (const ExecutorOutcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.failed.has_value());
    EXPECT_FALSE(outcome.ready.has_value());
    reasons += outcome.failed->reason;
  }
  EXPECT_TRUE(reasons.find("rank 0 and rank 1 read different data") != std::string::npos ||
              reasons.find("rank 1 and rank 0 read different data") != std::string::npos ||
              reasons.find("rank 2 and rank 3 read different data") != std::string::npos ||
              reasons.find("rank 3 and rank 2 read different data") != std::string::npos)
      << reasons;
}

class Elsewhere : public ::testing::TestWithParam<std::pair<Shape, Shape>> {};

TEST_P(Elsewhere, a_checkpoint_of_one_shape_is_gone_on_from_in_another) {
  Shape saver = GetParam().first, other = GetParam().second;
  saver.extra = other.extra = "checkpoint: {every: 2}\n";
  const Result whole = train(saver, {.writes = true});
  const std::string path = commit(saver, 2);

  // Nothing left to do: what is loaded is what was saved.
  Shape loaded = other;
  loaded.steps = 2;
  const Checkpoint checkpoint = *Checkpoint::open(path);
  const Result at_load = train(loaded, {.load_from = path, .first_step = 2});
  for (const auto& spec : plan::model_parameters(job_of(saver).model))
    EXPECT_EQ(at_load.digests.at(spec.index), checkpoint.find(spec.name)->digest) << spec.name;

  const Result rest = train(other, {.load_from = path, .first_step = 2});
  if (saver.data == other.data) {
    EXPECT_EQ(rest.digests, whole.digests);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  } else {
    EXPECT_LE(
        largest_difference(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end())),
        1e-5);
  }
  std::filesystem::remove_all(path);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Elsewhere,
    ::testing::Values(
        std::pair(Shape{.pipeline = 2, .data = 2, .model = kExperts}, Shape{.data = 2, .model = kExperts}),
        std::pair(
            Shape{.pipeline = 2, .data = 2, .parallel = ", shard_optimizer: true", .model = kEverything},
            Shape{.pipeline = 4, .data = 2, .model = kEverything}),
        std::pair(Shape{.data = 3, .model = kExperts},
                  Shape{.pipeline = 2, .data = 3, .parallel = ", shard_optimizer: true", .model = kExperts}),
        std::pair(
            Shape{.pipeline = 2, .data = 2, .schedule = "dualpipe", .parallel = ", shard_optimizer: true"},
            Shape{.pipeline = 2, .data = 4})));

}  // namespace
}  // namespace penstock::worker
