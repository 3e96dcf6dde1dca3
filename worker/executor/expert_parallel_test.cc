// Experts that the ranks of a stage share out among themselves, against one process that holds them all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/executor/testing/side_by_side.h"

namespace penstock::worker {
namespace {

constexpr double kTolerance = 1e-6;

// Norm of the difference over the norm of what is expected.
double relative_difference(const std::vector<float>& found, const std::vector<float>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, whole = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{found[i]} - double{expected[i]}, 2);
    whole += std::pow(double{expected[i]}, 2);
  }
  return whole == 0 ? std::sqrt(difference) : std::sqrt(difference / whole);
}

class AgainstOneProcess : public ::testing::TestWithParam<Shape> {};

TEST_P(AgainstOneProcess, loss_and_gradients_agree_to_1e_6) {
  // After one step AdamW's first moments are the gradients, but for a factor.
  Shape shape = GetParam();
  shape.steps = 1;
  shape.extra = "checkpoint: {every: 1}\n";
  const Result found = train(shape, {.writes = true});
  const std::string path = commit(shape, 1);
  const Checkpoint checkpoint = *Checkpoint::open(path);
  Reference reference(shape);
  const Result expected = reference.run();
  EXPECT_LE(largest_difference(found.losses, expected.losses), kTolerance);
  EXPECT_LE(largest_difference(found.norms, expected.norms), kTolerance);
  const auto parameters = plan::model_parameters(job_of(shape).model);
  ASSERT_EQ(found.digests.size(), parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<float> moment(static_cast<size_t>(parameters[i].elements()));
    ASSERT_TRUE(checkpoint.read(first_moment_name(parameters[i].name), moment).ok());
    EXPECT_LE(relative_difference(moment, reference.first_moments()[i]), kTolerance) << parameters[i].name;
  }
  std::filesystem::remove_all(path);
}

TEST_P(AgainstOneProcess, the_curve_stays_beside_it) {
  const Result found = train(GetParam());
  const Result& expected = reference_of(GetParam());
  EXPECT_LE(largest_difference(found.losses, expected.losses), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Degrees, AgainstOneProcess,
                         ::testing::Values(Shape{.model = kExperts},
                                           Shape{.pipeline = 2, .expert = 2, .model = kExperts},
                                           Shape{.pipeline = 2, .data = 2, .model = kExperts},
                                           Shape{.pipeline = 2, .data = 3, .model = kExperts},
                                           Shape{.pipeline = 2, .expert = 2, .data = 2, .model = kExperts},
                                           Shape{.pipeline = 4, .expert = 2, .model = kExperts},
                                           Shape{.pipeline = 2, .expert = 2, .model = kSharedExperts}));

// At fixed M_E and D_E no bit knows the rest. Experts are in blocks 1, 2 and 5: some stages have none, and so do most
// ranks of interleaved and V placements in one of their stages.
class SharedOut : public ::testing::TestWithParam<Shape> {};

TEST_P(SharedOut, has_the_same_bits_on_any_cut) {
  static std::map<std::string, Result> known;
  Shape plain = GetParam();
  plain.pipeline = plain.stages_per_rank = 1;
  plain.schedule = "1f1b";
  plain.split = "auto";
  plain.parallel = "";
  plain.extra = "";  // recomputation
  const std::string key = job_file(plain);
  if (!known.contains(key)) known[key] = train(plain);
  const Result found = train(GetParam());
  EXPECT_EQ(found.losses, known[key].losses);
  EXPECT_EQ(found.norms, known[key].norms);
  EXPECT_EQ(found.digests, known[key].digests);
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, SharedOut,
    ::testing::Values(
        Shape{.pipeline = 2, .expert = 2, .model = kExperts},
        // All experts in the second stage; the first is dense and takes part in every sum.
        Shape{.pipeline = 2,
              .expert = 2,
              .split = "[[embedding, 0], [1, 2, 3, 4, 5, head]]",
              .model = kExperts},
        Shape{.pipeline = 2,
              .expert = 2,
              .split = "[[embedding], [0, 1, 2, 3, 4, 5, head]]",
              .parallel = ", shard_optimizer: true",
              .model = kExperts},
        Shape{.pipeline = 4, .expert = 2, .schedule = "zb-h1", .model = kExperts},
        Shape{.pipeline = 2,
              .expert = 2,
              .schedule = "interleaved-1f1b",
              .stages_per_rank = 2,
              .model = kExperts},
        Shape{.pipeline = 2, .expert = 2, .schedule = "zb-v", .stages_per_rank = 2, .model = kExperts},
        Shape{.pipeline = 2, .expert = 2, .parallel = ", p2p: {mode: one-sided}", .model = kExperts},
        Shape{.pipeline = 2,
              .expert = 2,
              .schedule = "zb-h2",
              .parallel = ", optimizer_step: post-validated",
              .model = kExperts},
        Shape{.pipeline = 2,
              .expert = 2,
              .data = 3,
              .split = "[[embedding, 0, 1], [2, 3, 4, 5, head]]",
              .model = kExperts,
              .microbatch_size = 1},
        Shape{.pipeline = 2,
              .expert = 2,
              .data = 3,
              .split = "[[embedding, 0, 1, 2, 3, 4], [5, head]]",
              .parallel = ", shard_optimizer: true",
              .model = kExperts,
              .microbatch_size = 1}));

INSTANTIATE_TEST_SUITE_P(
    BesideSharedOnes, SharedOut,
    ::testing::Values(
        Shape{.pipeline = 2, .expert = 2, .model = kSharedExperts, .extra = "recompute: full\n"},
        Shape{.pipeline = 4, .expert = 2, .schedule = "zb-h1", .model = kSharedExperts},
        Shape{.pipeline = 2,
              .expert = 2,
              .data = 2,
              .schedule = "zb-v",
              .stages_per_rank = 2,
              .parallel = ", shard_optimizer: true",
              .model = kSharedExperts,
              .extra = "recompute: [1, 5]\n"},
        Shape{.pipeline = 2,
              .schedule = "interleaved-1f1b",
              .stages_per_rank = 2,
              .model = kSharedExperts,
              .dtype = "bfloat16"}));

// A second forward of a block sends its rows again, on all ranks of the stage.
INSTANTIATE_TEST_SUITE_P(
    Recomputed, SharedOut,
    ::testing::Values(Shape{.pipeline = 2, .expert = 2, .model = kExperts, .extra = "recompute: full\n"},
                      Shape{.pipeline = 2,
                            .expert = 2,
                            .schedule = "zb-h1",
                            .model = kExperts,
                            .extra = "recompute: [1, 5]\n"},
                      Shape{.pipeline = 2,
                            .expert = 2,
                            .data = 3,
                            .schedule = "zb-v",
                            .stages_per_rank = 2,
                            .parallel = ", shard_optimizer: true",
                            .model = kExperts,
                            .extra = "recompute: full\n",
                            .microbatch_size = 1}));

TEST(ExpertParallel, two_replicas_of_every_stage_and_older_weights_train_one_model) {
  for (const char* schedule : {"dualpipe", "chimera"}) {
    SCOPED_TRACE(schedule);
    const Shape shape{.pipeline = 2, .expert = 2, .schedule = schedule, .model = kExperts};
    const Result found = train(shape);
    const Result& expected = reference_of(shape);
    EXPECT_LE(largest_difference(found.losses, expected.losses), kTolerance);
    EXPECT_EQ(found.digests.size(), expected.digests.size());
  }
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(schedule);
    const Shape shape{.pipeline = 2,
                      .expert = 2,
                      .schedule = schedule,
                      .parallel = ", flush_every: 2",
                      .model = kExperts,
                      .clip = 0};
    EXPECT_EQ(train(shape).digests.size(), plan::model_parameters(job_of(shape).model).size());
  }
}

TEST(ExpertParallel, a_checkpoint_of_shared_out_experts_is_gone_on_from_with_all_of_them_on_a_rank) {
  Shape saver{.pipeline = 2,
              .expert = 2,
              .data = 2,
              .parallel = ", shard_optimizer: true",
              .model = kExperts,
              .extra = "checkpoint: {every: 2}\n"};
  const Result whole = train(saver, {.writes = true});
  const std::string path = commit(saver, 2);
  const Checkpoint checkpoint = *Checkpoint::open(path);
  for (Shape other :
       {Shape{.data = 4, .model = kExperts}, Shape{.pipeline = 4, .expert = 4, .model = kExperts},
        Shape{.expert = 2, .data = 2, .model = kExperts}}) {
    Shape loaded = other;
    loaded.steps = 2;
    const Result at_load = train(loaded, {.load_from = path, .first_step = 2});
    for (const auto& spec : plan::model_parameters(job_of(saver).model))
      EXPECT_EQ(at_load.digests.at(spec.index), checkpoint.find(spec.name)->digest) << spec.name;
    const Result rest = train(other, {.load_from = path, .first_step = 2});
    const std::vector<double> losses(whole.losses.begin() + 2, whole.losses.end());
    EXPECT_LE(largest_difference(rest.losses, losses), kTolerance);
    if (other.expert == saver.expert) {
      EXPECT_EQ(rest.digests, whole.digests);
    }
  }
  std::filesystem::remove_all(path);
}

TEST(ExpertParallel, a_checkpoint_goes_to_other_degrees_and_back) {
  const auto shape = [](int expert, int steps, int pipeline = 2) {
    return Shape{.pipeline = pipeline,
                 .expert = expert,
                 .data = 2 / expert,
                 .model = kExperts,
                 .extra = "checkpoint: {every: 2}\n",
                 .steps = steps};
  };
  const auto expect_loaded = [&](const Shape& loaded, const std::string& path) {
    const Checkpoint checkpoint = *Checkpoint::open(path);
    const Result at_load = train(loaded, {.load_from = path, .first_step = loaded.steps});
    for (const auto& spec : plan::model_parameters(job_of(loaded).model))
      EXPECT_EQ(at_load.digests.at(spec.index), checkpoint.find(spec.name)->digest) << spec.name;
  };
  const Result alone = train(shape(1, 6), {.writes = true});
  const std::string first = commit(shape(1, 6), 2);
  expect_loaded(shape(2, 2), first);
  const Result shared_out = train(shape(2, 6), {.writes = true, .load_from = first, .first_step = 2});
  const std::string second = commit(shape(2, 6), 4);
  expect_loaded(shape(1, 4), second);
  // Back at the degrees that it had: of one split as of another, moments included.
  const Result back = train(shape(1, 6), {.load_from = second, .first_step = 4});
  EXPECT_EQ(train(shape(1, 6, 4), {.load_from = second, .first_step = 4}), back);
  // Two steps were summed in another order, and no more.
  std::vector<double> losses(shared_out.losses.begin(), shared_out.losses.begin() + 2);
  losses.insert(losses.end(), back.losses.begin(), back.losses.end());
  const std::vector<double> expected(alone.losses.begin() + 2, alone.losses.end());
  EXPECT_LE(largest_difference(losses, expected), kTolerance);
  for (const std::string& path : {first, second}) std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace penstock::worker
