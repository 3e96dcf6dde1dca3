// parallel.flush_every, and what pipedream and pipedream-2bw ask of the rest of a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/schedule_source.h"

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Asked {
  std::string parallel = "schedule: pipedream";
  int steps = 100;
  int validate_every = 0;
  std::string optimizer = "clip_grad_norm: 0";
  std::string model = "";
  int global_batch_size = 4;
  std::string extra = "";  // lines added to the job file
};

StatusOr<JobSpec> parsed(const Asked& asked) {
  std::string text = fmt::format(
      "name: stale\n"
      "model: {{vocab_size: 256, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2,\n"
      "        intermediate_size: 8, max_position_embeddings: 16{}}}\n"
      "data: {{source: a.txt, sequence_length: 16}}\n"
      "train: {{steps: {}, global_batch_size: {}, microbatch_size: 1, optimizer: {{{}}}}}\n"
      "parallel: {{pipeline: 2, {}}}\n",
      asked.model, asked.steps, asked.global_batch_size, asked.optimizer, asked.parallel);
  if (asked.validate_every > 0)
    text += fmt::format("validation: {{source: b.txt, every: {}, microbatches: 1}}\n", asked.validate_every);
  return parse_job_spec(text + asked.extra);
}

int chosen(const Asked& asked) {
  const StatusOr<JobSpec> spec = parsed(asked);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? spec->parallel.flush_every : -1;
}

std::string refusal(const Asked& asked) {
  return message(parsed(asked).status());
}

TEST(Flushes, default_is_the_divisor_of_the_steps_that_is_nearest_to_50) {
  EXPECT_EQ(chosen({.steps = 1000}), 50);
  EXPECT_EQ(chosen({.steps = 6}), 6);
  EXPECT_EQ(chosen({.steps = 60}), 60);
  EXPECT_EQ(chosen({.steps = 1}), 1);
  EXPECT_EQ(chosen({.steps = 101}), 101);
  EXPECT_EQ(chosen({.steps = 10007}), 1) << "a prime: a program of 10,007 updates would be large";
  EXPECT_EQ(chosen({.steps = 1000, .validate_every = 40}), 40) << "validation needs a drained pipeline too";
  EXPECT_EQ(chosen({.parallel = "schedule: pipedream-2bw", .steps = 1000}), 50);
}

TEST(Flushes, what_was_chosen_is_said_at_submit) {
  EXPECT_THAT(
      parsed({.steps = 1000, .validate_every = 40})->notes,
      ElementsAre("parallel.flush_every: 40, the divisor of train.steps (1000) and validation.every (40) "
                  "that is nearest to 50: the pipeline drains after every 40 updates"));
  EXPECT_THAT(parsed({.steps = 10007})->notes,
              ElementsAre(HasSubstr("which makes the training synchronous")));
  EXPECT_THAT(parsed({.parallel = "schedule: pipedream, flush_every: 10"})->notes, IsEmpty());
}

TEST(Flushes, checkpoints_find_the_pipeline_drained) {
  EXPECT_EQ(chosen({.extra = "checkpoint: {every: 20}\n"}), 20);
  EXPECT_EQ(chosen({.validate_every = 50, .extra = "checkpoint: {every: 20}\n"}), 10);
  EXPECT_THAT(
      refusal({.parallel = "schedule: pipedream, flush_every: 50", .extra = "checkpoint: {every: 20}\n"}),
      HasSubstr("a divisor of train.steps (100) and checkpoint.every (20), where the pipeline must be "
                "drained, as 20, found 50"));
}

TEST(Flushes, a_program_spans_as_many_updates_and_synchronous_ones_span_one) {
  const auto updates = [](const std::string& parallel) {
    return compute_program(parsed({.parallel = parallel}).value())->updates;
  };
  EXPECT_EQ(updates("schedule: pipedream, flush_every: 20"), 20);
  EXPECT_EQ(updates("schedule: pipedream-2bw"), 50);
  EXPECT_EQ(updates("schedule: 1f1b"), 1);
  EXPECT_TRUE(parsed({})->is_asynchronous());
  EXPECT_FALSE(parsed({.parallel = "schedule: 1f1b"})->is_asynchronous());
}

TEST(Flushes, a_value_that_does_not_divide_is_refused_with_those_that_do) {
  EXPECT_EQ(
      refusal({.parallel = "schedule: pipedream, flush_every: 30"}),
      "line 6: parallel.flush_every: expected a divisor of train.steps (100), where the pipeline must be "
      "drained, as 25 or 50, found 30");
  EXPECT_EQ(
      refusal({.parallel = "schedule: pipedream, flush_every: 50", .validate_every = 20}),
      "line 6: parallel.flush_every: expected a divisor of train.steps (100) and validation.every (20), where "
      "the pipeline must be drained, as 20, found 50");
  EXPECT_THAT(refusal({.parallel = "schedule: pipedream, flush_every: 200"}), HasSubstr("as 100, found 200"));
  EXPECT_THAT(refusal({.parallel = "schedule: pipedream, flush_every: 0"}),
              HasSubstr("parallel.flush_every: expected a whole number from 1"));
}

TEST(Flushes, a_program_too_large_to_hand_out_is_refused_and_never_chosen) {
  // 65,536 microbatches an update: two updates are the most that a rank's program may have.
  EXPECT_EQ(chosen({.steps = 100, .global_batch_size = 65536}), 2);
  EXPECT_THAT(refusal({.parallel = "schedule: pipedream, flush_every: 50", .global_batch_size = 65536}),
              HasSubstr("expected at most 2 updates between drains for 65536 microbatches of 2 stages, as 2, "
                        "found 50"));
}

TEST(Flushes, synchronous_schedules_have_no_such_key) {
  EXPECT_EQ(
      refusal({.parallel = "schedule: 1f1b, flush_every: 50"}),
      "line 6: parallel.flush_every: expected no such key with 1f1b, which drains the pipeline in every "
      "update, found 50");
}

TEST(Flushes, what_would_make_ranks_meet_in_every_update_is_refused_with_the_fix) {
  EXPECT_EQ(
      refusal({.optimizer = "clip_grad_norm: 1.5"}),
      "line 5: train.optimizer.clip_grad_norm: expected 0 with schedule pipedream, found 1.5: clipping takes "
      "the norm of the whole model, and these ranks do not wait for each other between updates; write "
      "clip_grad_norm: 0");
  EXPECT_THAT(refusal({.optimizer = "lr: 1e-3"}), HasSubstr("found 1 (the default)"));
  EXPECT_THAT(
      refusal({.optimizer = "clip_grad_norm: 0, nonfinite: skip"}),
      HasSubstr("line 5: train.optimizer.nonfinite: expected fail with schedule pipedream, found skip"));
  EXPECT_THAT(refusal({.parallel = "schedule: pipedream, optimizer_step: post-validated"}),
              HasSubstr("expected barrier, because it is not synchronous"));
  EXPECT_THAT(
      refusal({.model = ", tie_word_embeddings: true"}),
      HasSubstr("line 3: model.tie_word_embeddings: expected false with schedule pipedream, found true"));
  EXPECT_TRUE(parsed({.parallel = "schedule: 1f1b", .model = ", tie_word_embeddings: true"}).ok());
}

}  // namespace
}  // namespace penstock::plan
