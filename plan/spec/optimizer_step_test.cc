// parallel.optimizer_step and train.optimizer.nonfinite.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

struct Variant {
  std::string model = "";
  std::string optimizer = "";
  std::string parallel = "pipeline: 4, schedule: 1f1b, optimizer_step: post-validated";
};

StatusOr<JobSpec> parse(const Variant& variant) {
  return parse_job_spec(fmt::format(
      "name: small\n"
      "model: {{vocab_size: 256, hidden_size: 16, num_hidden_layers: 8, num_attention_heads: 2, "
      "intermediate_size: 24, max_position_embeddings: 16{}}}\n"
      "data: {{source: corpus.txt, sequence_length: 16}}\n"
      "train: {{steps: 2, global_batch_size: 4, microbatch_size: 1, optimizer: {{name: adamw{}}}}}\n"
      "parallel: {{{}}}\n",
      variant.model, variant.optimizer, variant.parallel));
}

std::string refusal(const Variant& variant) {
  const StatusOr<JobSpec> spec = parse(variant);
  return spec.ok() ? "accepted" : message(spec.status());
}

TEST(OptimizerStep, is_behind_a_barrier_and_fails_on_what_is_not_finite_unless_the_job_says_else) {
  const JobSpec plain = *parse({.parallel = "pipeline: 4"});
  EXPECT_EQ(plain.parallel.optimizer_step, "barrier");
  EXPECT_EQ(plain.train.optimizer.nonfinite, "fail");
  const JobSpec other = *parse({.optimizer = ", nonfinite: skip"});
  EXPECT_EQ(other.parallel.optimizer_step, "post-validated");
  EXPECT_EQ(other.train.optimizer.nonfinite, "skip");
  EXPECT_THAT(refusal({.optimizer = ", nonfinite: ignore"}),
              HasSubstr("line 4: train.optimizer.nonfinite: expected one of fail, skip, found ignore"));
}

TEST(OptimizerStep, post_validated_is_refused_with_the_reason_where_ranks_meet_in_every_step) {
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(
      refusal({.model = ", tie_word_embeddings: true"}),
      "line 5: parallel.optimizer_step: expected barrier, because two ranks of tied embeddings meet in every "
      "step, found post-validated");
  EXPECT_EQ(
      refusal({.parallel = "pipeline: 4, data: 2, shard_optimizer: true, schedule: 1f1b, optimizer_step: "
                           "post-validated"}),
      "line 5: parallel.optimizer_step: expected barrier, because with shard_optimizer a weight comes from the rank "
      "that has its moments in every step, found post-validated");
  EXPECT_EQ(
      refusal({.parallel = "pipeline: 2, stages_per_rank: 2, schedule: interleaved-1f1b, optimizer_step: "
                           "post-validated"}),
      "line 5: parallel.optimizer_step: expected barrier, because only one stage a rank can do without it and "
      "schedule interleaved-1f1b has 2, found post-validated");
  EXPECT_EQ(refusal({.model = ", tie_word_embeddings: true", .parallel = "pipeline: 2"}), "accepted");
}

}  // namespace
}  // namespace penstock::plan
