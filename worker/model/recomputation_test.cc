// Blocks that are recomputed, against the same blocks that keep everything: bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "plan/cost/memory.h"
#include "worker/model/expert_load.h"
#include "worker/model/model_stage.h"
#include "worker/model/testing/small_jobs.h"

namespace penstock::worker {
namespace {

using plan::BackwardForm;
using ::testing::HasSubstr;
using RecomputationTest = SmallJobTest;

plan::JobSpec recomputing(plan::JobSpec job, std::vector<int64_t> layers) {
  job.recompute = std::move(layers);
  return job;
}
plan::JobSpec recomputing_all(plan::JobSpec job) {
  std::vector<int64_t> layers(static_cast<size_t>(job.model.num_hidden_layers));
  std::iota(layers.begin(), layers.end(), 0);
  return recomputing(std::move(job), std::move(layers));
}

// Everything that a block's forward may depend on: masks, documents, norms, choices, a microbatch that is filled up.
std::vector<plan::JobSpec> everything(const plan::JobSpec& job) {
  std::vector<plan::JobSpec> jobs = {
      job,
      with_dropout(with_qk_norm(with_documents(job))),
      with_experts(with_norms_across_heads(job)),
      with_capacity(with_experts(with_dropout(with_uneven_microbatches(job)))),
      with_shared_experts(with_dropout(job)),
      with_tied_embeddings(with_qk_norm(with_dropout(with_uneven_microbatches(with_documents(job)))))};
  for (size_t i = 0, plain = jobs.size(); i < plain; ++i) jobs.push_back(in_bfloat16(jobs[i]));
  return jobs;
}

TEST_F(RecomputationTest, any_blocks_and_any_order_give_the_bits_of_none) {
  for (const plan::JobSpec& plain : everything(job())) {
    SequentialRun kept(plain, cut(plain.model));
    kept.run_step(1);
    const Outcome expected = Outcome::of(kept);
    ASSERT_TRUE(std::isfinite(expected.loss));
    for (const plan::JobSpec& spec :
         {recomputing_all(plain), recomputing(plain, {2}), recomputing(plain, {0, 3, 4})}) {
      for (const std::vector<size_t>& counts : std::vector<std::vector<size_t>>{{7}, {1, 5, 1}, {2, 2, 3}}) {
        SequentialRun run(spec, cut(spec.model, counts), 2);
        run.begin_step(1);
        for (int64_t m = 0; m < spec.microbatches(); ++m) run.forward(m);
        for (int64_t m = 0; m < spec.microbatches(); ++m) run.backward(m);
        run.sum_tied_gradients();
        expect_same_bits(Outcome::of(run), expected);
      }
    }
  }
}

TEST_F(RecomputationTest, halves_find_at_w_what_i_recomputed) {
  // All I before the first W: what one microbatch recomputed must have outlived the recomputation of the others.
  for (const plan::JobSpec& plain : everything(job())) {
    SequentialRun kept(plain, cut(plain.model));
    kept.run_step(1);
    const Outcome expected = Outcome::of(kept);
    for (const plan::JobSpec& spec : {recomputing_all(plain), recomputing(plain, {1, 3})}) {
      for (const std::vector<size_t>& counts : std::vector<std::vector<size_t>>{{7}, {1, 5, 1}}) {
        SequentialRun run(spec, cut(spec.model, counts), 1, BackwardForm::Split);
        run.begin_step(1);
        for (int64_t m = 0; m < spec.microbatches(); ++m) run.forward(m);
        for (int64_t m = 0; m < spec.microbatches(); ++m) run.input_gradient(m);
        for (int64_t m = 0; m < spec.microbatches(); ++m) run.weight_gradient(m);
        run.sum_tied_gradients();
        expect_same_bits(Outcome::of(run), expected);
      }
    }
  }
}

TEST_F(RecomputationTest, whole_and_split_backwards_mix_on_one_stage) {
  // DualPipe runs both kinds of the same stage: a whole backward recomputes beside what waits for its W.
  const plan::JobSpec plain = with_dropout(with_experts(job()));
  SequentialRun kept(plain, cut(plain.model, {3, 4}));
  kept.run_step(2);
  SequentialRun mixed(recomputing_all(plain), cut(plain.model, {3, 4}), 1, BackwardForm::Split);
  mixed.begin_step(2);
  for (int64_t m = 0; m < 4; ++m) mixed.forward(m);
  mixed.input_gradient(1);
  mixed.backward(0);
  mixed.weight_gradient(1);
  mixed.input_gradient(2);
  mixed.input_gradient(3);
  mixed.weight_gradient(2);
  mixed.weight_gradient(3);
  expect_same_bits(Outcome::of(mixed), Outcome::of(kept));
}

TEST_F(RecomputationTest, experts_are_counted_once) {
  const plan::JobSpec plain = with_capacity(with_experts(job()));
  SequentialRun kept(plain, cut(plain.model));
  SequentialRun again(recomputing_all(plain), cut(plain.model));
  for (SequentialRun* run : {&kept, &again}) run->run_step(0);
  const auto expected = kept.stage(0).expert_loads(StepIndex(0)),
             found = again.stage(0).expert_loads(StepIndex(0));
  ASSERT_EQ(found.size(), 3u);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]->rows, expected[i]->rows);
    EXPECT_EQ(found[i]->dropped, expected[i]->dropped);
    EXPECT_EQ(found[i]->balance, expected[i]->balance);
    EXPECT_EQ(found[i]->tokens, expected[i]->tokens);
  }
}

TEST_F(RecomputationTest, warming_up_leaves_no_trace) {
  const plan::JobSpec spec = recomputing_all(with_experts(job()));
  SequentialRun cold(spec, cut(spec.model, {3, 4}), 1, BackwardForm::Split);
  SequentialRun warm(spec, cut(spec.model, {3, 4}), 1, BackwardForm::Split);
  for (size_t stage = 0; stage < warm.stages(); ++stage) ASSERT_TRUE(warm.stage(stage).warm_up().ok());
  cold.run_step(0);
  warm.run_step(0);
  expect_same_bits(Outcome::of(warm), Outcome::of(cold));
}

TEST_F(RecomputationTest, a_slot_holds_the_input_of_a_recomputed_block_and_nothing_else_of_it) {
  const auto rounded = [](int64_t elements) { return (elements * 4 + 63) / 64 * 64; };
  const int64_t residual = rounded(int64_t{42} * 36);
  const plan::JobSpec all = recomputing_all(job());
  const plan::Split split = cut(all.model, {3, 3, 1});
  for (const BackwardForm form : {BackwardForm::Fused, BackwardForm::Split}) {
    EXPECT_EQ(ModelStage::slot_bytes(all, split[1], form), 3 * residual);
    EXPECT_EQ(ModelStage::slot_bytes(all, split[2], form), ModelStage::slot_bytes(job(), split[2], form));
    // What it does not hold stands in scratch memory, one block at a time, or from I to W in a recomputation slot.
    const int64_t block = ModelStage::slot_bytes(job(), {split[1][0]}, form) - residual;
    EXPECT_EQ(ModelStage::recomputation_bytes(all, split[1], form).scratch, block);
    EXPECT_EQ(ModelStage::recomputation_bytes(all, split[1], form).slot,
              form == BackwardForm::Split ? 3 * block : 0);
    EXPECT_EQ(ModelStage::recomputation_bytes(job(), split[1], form).scratch, 0);
  }
}

TEST_F(RecomputationTest, slots_take_the_predicted_bytes) {
  for (const plan::JobSpec& plain : everything(job())) {
    const plan::JobSpec spec = recomputing(plain, {1, 2});
    for (const std::vector<size_t>& counts : std::vector<std::vector<size_t>>{{7}, {3, 3, 1}, {1, 5, 1}}) {
      for (const std::vector<plan::Item>& items : cut(spec.model, counts)) {
        for (const BackwardForm form : {BackwardForm::Fused, BackwardForm::Split}) {
          EXPECT_EQ(ModelStage::slot_bytes(spec, items, form),
                    plan::activation_slot_bytes(spec, items, form));
        }
        EXPECT_EQ(ModelStage::recomputation_bytes(spec, items, BackwardForm::Split).slot,
                  plan::recomputation_slot_bytes(spec, items));
      }
    }
  }
}

// Three stages of a model whose blocks are all recomputed; of the middle one, calls with tensors of its own.
class MiddleStage {
 public:
  explicit MiddleStage(const plan::JobSpec& spec)
      : run_(spec, cut(spec.model, {1, 5, 1}), 1, BackwardForm::Split), memory_(size_t{42} * 36) {
    run_.begin_step(0);
  }
  StageCall call(int microbatch, int slot) {
    const kernels::TensorView tensor(memory_.data(), kernels::DataType::Float32, {42, 36});
    return {.step = StepIndex(0),
            .microbatch = MicrobatchIndex(microbatch),
            .slot = slot,
            .input = tensor,
            .output = tensor};
  }
  ModelStage& stage() { return run_.stage(1); }

 private:
  SequentialRun run_;
  std::vector<float> memory_;
};

TEST_F(RecomputationTest, a_weight_gradient_without_its_input_gradient_is_refused) {
  MiddleStage middle(recomputing_all(job()));
  StageCall weight = middle.call(1, 1);
  weight.input = weight.output = {};
  const Status status = middle.stage().weight_gradient(weight);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(message(status), HasSubstr("stage 1: W1 of a microbatch whose I has not run"));
}

TEST_F(RecomputationTest, more_microbatches_between_their_halves_than_slots_are_refused) {
  // SequentialRun has a slot for each of four microbatches; activation slot 0 holds another one each time.
  MiddleStage middle(recomputing_all(job()));
  for (const int m : {0, 1, 2, 3}) {
    ASSERT_TRUE(middle.stage().forward(middle.call(m, m)).ok());
    ASSERT_TRUE(middle.stage().input_gradient(middle.call(m, m)).ok());
  }
  const Status status = middle.stage().input_gradient(middle.call(4, 0));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(message(status),
              HasSubstr("stage 1: microbatch 4 asked for a slot of recomputation; all 4 are held"));
}

}  // namespace
}  // namespace penstock::worker
