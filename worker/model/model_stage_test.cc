#include "worker/model/model_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "plan/cost/memory.h"
#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/weight_versions.h"
#include "worker/model/blocks/experts.h"
#include "worker/model/testing/small_jobs.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;
using ModelStageTest = SmallJobTest;

TEST_F(ModelStageTest, any_split_gives_the_same_bits) {
  // The numerics contract: moving a stage boundary must not move the loss curve.
  for (const plan::JobSpec& spec : {job(), in_bfloat16(job())}) {
    SCOPED_TRACE(spec.train.dtype);
    SequentialRun whole(spec, cut(spec.model));
    whole.run_step(0);
    const Outcome expected = Outcome::of(whole);
    ASSERT_TRUE(std::isfinite(expected.loss));
    for (const std::vector<size_t>& counts :
         std::vector<std::vector<size_t>>{{2, 2, 2, 1}, {1, 1, 1, 1, 1, 1, 1}, {1, 5, 1}, {6, 1}, {3, 4}}) {
      SequentialRun run(spec, cut(spec.model, counts));
      run.run_step(0);
      expect_same_bits(Outcome::of(run), expected);
    }
  }
}

TEST_F(ModelStageTest, bfloat16_stays_close_to_float32_and_is_another_arithmetic) {
  SequentialRun wide(job(), cut(job().model));
  SequentialRun narrow(in_bfloat16(job()), cut(job().model));
  wide.run_step(0);
  narrow.run_step(0);
  EXPECT_NE(narrow.loss(), wide.loss());
  EXPECT_NEAR(narrow.loss(), wide.loss(), 1e-2 * wide.loss());
  const std::vector<Parameter> expected = wide.parameters(), found = narrow.parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    double difference = 0, square = 0;
    for (int64_t k = 0; k < expected[i].gradient.elements(); ++k) {
      difference += std::pow(found[i].gradient.f32()[k] - expected[i].gradient.f32()[k], 2);
      square += std::pow(expected[i].gradient.f32()[k], 2);
    }
    EXPECT_LT(std::sqrt(difference / square), 5e-2) << expected[i].spec.name;
  }
}

TEST_F(ModelStageTest, warming_up_leaves_no_trace_but_gradients_that_are_made_zero) {
  for (const plan::JobSpec& spec : {job(), in_bfloat16(job())}) {
    SequentialRun cold(spec, cut(spec.model, {3, 4}));
    SequentialRun warm(spec, cut(spec.model, {3, 4}));
    for (size_t stage = 0; stage < warm.stages(); ++stage) ASSERT_TRUE(warm.stage(stage).warm_up().ok());
    EXPECT_EQ(warm.loss_sum(), 0);
    cold.run_step(0);
    warm.run_step(0);
    expect_same_bits(Outcome::of(warm), Outcome::of(cold));
  }
}

TEST_F(ModelStageTest, any_split_and_order_gives_the_same_bits_whatever_the_model_says) {
  const std::vector<plan::JobSpec> jobs = {
      with_tied_embeddings(job()),
      with_qk_norm(job()),
      with_dropout(job()),
      with_uneven_microbatches(job()),
      with_documents(job()),
      with_experts(job()),
      with_capacity(with_experts(with_dropout(job()))),
      in_bfloat16(with_experts(with_norms_across_heads(with_uneven_microbatches(job())))),
      with_tied_embeddings(with_qk_norm(with_dropout(with_uneven_microbatches(with_documents(job()))))),
      in_bfloat16(
          with_tied_embeddings(with_qk_norm(with_dropout(with_uneven_microbatches(with_documents(job())))))),
      with_shared_experts(job()),
      in_bfloat16(with_capacity(with_shared_experts(with_dropout(job()))))};
  const plan::JobSpec plain = job();
  SequentialRun base(plain, cut(plain.model));
  base.run_step(1);
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    const plan::JobSpec& spec = jobs[i];
    SequentialRun whole(spec, cut(spec.model));
    whole.run_step(1);
    const Outcome expected = Outcome::of(whole);
    ASSERT_TRUE(std::isfinite(expected.loss));
    if (i != 3) {  // it does change something; the cut of the batch must not
      EXPECT_NE(whole.loss_sum(), base.loss_sum());
    }
    for (const std::vector<size_t>& counts : std::vector<std::vector<size_t>>{{2, 2, 2, 1}, {1, 5, 1}}) {
      SequentialRun run(spec, cut(spec.model, counts), 2);
      run.begin_step(1);
      for (int64_t m = 0; m < spec.microbatches(); ++m) run.forward(m);
      for (int64_t m = 0; m < spec.microbatches(); ++m) run.backward(m);
      run.sum_tied_gradients();
      expect_same_bits(Outcome::of(run), expected);
    }
  }
}

double largest_relative_difference(const SequentialRun& found, const SequentialRun& expected) {
  double largest = 0;
  const std::vector<Parameter> a = found.parameters(), b = expected.parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    double difference = 0, scale = 0;
    for (int64_t k = 0; k < a[i].gradient.elements(); ++k) {
      difference = std::max<double>(difference, std::abs(a[i].gradient.f32()[k] - b[i].gradient.f32()[k]));
      scale = std::max<double>(scale, std::abs(b[i].gradient.f32()[k]));
    }
    largest = std::max(largest, difference / scale);
  }
  return largest;
}

TEST_F(ModelStageTest, a_batch_of_eight_in_three_microbatches_is_that_batch_in_one) {
  // The last microbatch is filled up with a sequence that must not count: neither in the loss, nor in the mean,
  // nor in any gradient.
  for (const plan::JobSpec& plain : {job(), with_experts(job())}) {
    plan::JobSpec one = plain;
    one.train.microbatch_size = 8;
    const plan::JobSpec three = with_uneven_microbatches(plain);
    ASSERT_EQ(three.microbatches(), 3);
    SequentialRun whole(one, cut(one.model));
    SequentialRun parts(three, cut(three.model));
    for (const int64_t step : {0, 1}) {
      whole.run_step(step);
      parts.run_step(step);
      EXPECT_EQ(parts.stage(0).loss_targets(), 8 * 21);
      EXPECT_NEAR(parts.loss(), whole.loss(), 1e-6 * whole.loss());
      EXPECT_LT(largest_relative_difference(parts, whole), 1e-5);
    }
  }
}

TEST_F(ModelStageTest, the_gradient_of_a_tied_matrix_is_the_sum_of_both_uses) {
  // Against the untied model with the same weights in both places.
  const plan::JobSpec tied_job = with_tied_embeddings(job());
  SequentialRun tied(tied_job, cut(tied_job.model, {3, 4}));
  SequentialRun untied(job(), cut(job().model, {3, 4}));
  const kernels::TensorView matrix = tied.parameters(0).at("model.embed_tokens.weight").weight;
  const Parameter& embedding = untied.parameters(0).at("model.embed_tokens.weight");
  const Parameter& head = untied.parameters(1).at("lm_head.weight");
  untied.operators().copy(matrix, head.weight);
  ASSERT_EQ(std::memcmp(matrix.data(), embedding.weight.data(), static_cast<size_t>(matrix.bytes())), 0);
  tied.run_step(0);
  untied.run_step(0);
  EXPECT_EQ(tied.loss(), untied.loss());
  const kernels::TensorView sum = tied.parameters(0).at("model.embed_tokens.weight").gradient;
  for (int64_t k = 0; k < sum.elements(); ++k) {
    ASSERT_EQ(sum.f32()[k], embedding.gradient.f32()[k] + head.gradient.f32()[k]) << k;
  }
  EXPECT_EQ(tied.parameters().size() + 1, untied.parameters().size());
}

TEST_F(ModelStageTest, every_microbatch_has_masks_of_its_own) {
  // The same tokens in every microbatch: without dropout their losses are equal, with it they are not.
  std::ofstream(path_, std::ios::binary) << std::string(4000, 'x');
  for (const bool dropout : {false, true}) {
    const plan::JobSpec spec = dropout ? with_dropout(job()) : job();
    SequentialRun run(spec, cut(spec.model));
    run.begin_step(0);
    run.forward(0);
    const double first = run.loss_sum();
    run.forward(1);
    EXPECT_EQ(run.loss_sum() == 2 * first, !dropout);
    run.begin_step(1);
    run.forward(0);
    EXPECT_EQ(run.loss_sum() == first, !dropout) << "another step has the same mask";
  }
}

TEST_F(ModelStageTest, dropout_gradients_are_those_of_the_masked_function) {
  // Central differences through the whole model under the same masks: a backward with another mask, scale or
  // place fails here.
  plan::JobSpec spec = with_dropout(with_qk_norm(job()));
  spec.train.global_batch_size = 2;
  spec.model.num_hidden_layers = 2;
  SequentialRun run(spec, cut(spec.model));
  run.run_step(0);
  const Outcome outcome = Outcome::of(run);
  for (size_t p = 0; p < outcome.gradients.size(); ++p) {
    const Parameter parameter = run.parameters()[p];
    const std::vector<float>& gradient = outcome.gradients[p];
    // Along the gradient itself: the derivative is its norm.
    double norm = 0;
    for (const float value : gradient) norm += static_cast<double>(value) * value;
    norm = std::sqrt(norm);
    const double step_size = 2e-2 / std::max(1.0, norm);
    std::vector<float> weight(parameter.weight.f32(), parameter.weight.f32() + parameter.weight.elements());
    const auto loss_at = [&](double offset) {
      for (size_t k = 0; k < weight.size(); ++k) {
        parameter.weight.f32()[k] = static_cast<float>(weight[k] + offset * gradient[k] / norm);
      }
      run.begin_step(0);
      run.forward(0);
      return run.loss();
    };
    const double slope = (loss_at(step_size) - loss_at(-step_size)) / (2 * step_size);
    std::copy(weight.begin(), weight.end(), parameter.weight.f32());
    EXPECT_NEAR(slope, norm, 0.02 * norm) << parameter.spec.name;
  }
}

TEST_F(ModelStageTest, experts_that_are_full_drop_choices_and_say_how_many) {
  const plan::JobSpec spec = with_capacity(with_experts(job()));
  ASSERT_EQ(spec.expert_capacity(), 19);  // 0.9 x 42 tokens x 2 choices / 4 experts
  SequentialRun run(spec, cut(spec.model));
  run.run_step(0);
  const std::vector<const ExpertLoad*> loads = run.stage(0).expert_loads(StepIndex(0));
  ASSERT_EQ(loads.size(), 3u);
  for (const ExpertLoad* load : loads) {
    int64_t rows = 0;
    for (const int64_t each : load->rows) {
      EXPECT_LE(each, 4 * 19);  // in four microbatches
      rows += each;
    }
    EXPECT_GT(load->dropped, 0);
    EXPECT_EQ(rows + load->dropped, 4 * 42 * 2);
  }
  run.begin_step(1);
  EXPECT_EQ(run.stage(0).expert_loads(StepIndex(1))[0]->dropped, 0);
}

TEST_F(ModelStageTest, any_number_of_threads_gives_the_same_bits) {
  for (const plan::JobSpec& spec : {job(), in_bfloat16(job()), in_bfloat16(with_experts(job()))}) {
    SequentialRun one(spec, cut(spec.model, {4, 3}), 1);
    one.run_step(0);
    for (const int threads : {2, 3}) {
      SequentialRun run(spec, cut(spec.model, {4, 3}), threads);
      run.run_step(0);
      expect_same_bits(Outcome::of(run), Outcome::of(one));
    }
  }
}

TEST_F(ModelStageTest, all_forwards_before_all_backwards_gives_the_same_bits) {
  // gpipe against naive: every microbatch is alive at once, each in its own slot.
  for (const plan::JobSpec& spec : {job(), in_bfloat16(job())}) {
    SequentialRun naive(spec, cut(spec.model, {3, 4}));
    naive.run_step(2);
    SequentialRun gpipe(spec, cut(spec.model, {3, 4}));
    gpipe.begin_step(2);
    for (int64_t i = 0; i < 4; ++i) gpipe.forward(i);
    for (int64_t i = 0; i < 4; ++i) gpipe.backward(i);
    expect_same_bits(Outcome::of(gpipe), Outcome::of(naive));
  }
}

TEST_F(ModelStageTest, the_loss_is_summed_in_microbatch_order_whatever_the_order_of_the_forwards) {
  SequentialRun rising(job(), cut(job().model));
  SequentialRun falling(job(), cut(job().model));
  rising.begin_step(0);
  falling.begin_step(0);
  for (int64_t i = 0; i < 4; ++i) rising.forward(i);
  for (int64_t i = 4; i-- > 0;) falling.forward(i);
  EXPECT_EQ(rising.loss_sum(), falling.loss_sum());
  EXPECT_GT(rising.loss(), 0);
}

TEST_F(ModelStageTest, a_new_step_starts_from_no_loss_and_other_samples) {
  SequentialRun run(job(), cut(job().model));
  run.run_step(0);
  const double first = run.loss_sum();
  run.begin_step(1);
  EXPECT_EQ(run.loss_sum(), 0);
  run.run_step(1);
  EXPECT_NE(run.loss_sum(), first);
  run.run_step(0);
  EXPECT_EQ(run.loss_sum(), first);
}

TEST_F(ModelStageTest, a_forward_that_comes_twice_in_a_step_is_an_error) {
  // It would count a microbatch twice, and every loss after it would be wrong.
  SequentialRun run(job(), cut(job().model));
  run.begin_step(0);
  run.forward(1);
  const Status status =
      run.stage(0).forward({.step = StepIndex(0), .microbatch = MicrobatchIndex(1), .slot = 1});
  EXPECT_EQ(status.code(), StatusCode::kInternal);
}

TEST_F(ModelStageTest, slots_and_parameters_take_the_predicted_bytes) {
  // Memory budgets are decided by the formulas of plan/cost before anything is allocated.
  for (const plan::JobSpec& spec :
       {job(), in_bfloat16(job()), with_experts(job()), in_bfloat16(with_capacity(with_experts(job()))),
        with_shared_experts(job()), in_bfloat16(with_shared_experts(job()))}) {
    for (const std::vector<size_t>& counts : std::vector<std::vector<size_t>>{{7}, {3, 3, 1}, {1, 5, 1}}) {
      for (const std::vector<plan::Item>& items : cut(spec.model, counts)) {
        for (const plan::BackwardForm form : {plan::BackwardForm::Fused, plan::BackwardForm::Split}) {
          EXPECT_EQ(ModelStage::slot_bytes(spec, items, form),
                    plan::activation_slot_bytes(spec, items, form));
        }
        plan::RankProgram program;
        program.buffers = {{.stage = StageIndex(0), .activation_slots = 3, .twin = {}}};
        const auto predicted = plan::predict_memory(spec, {items}, program).value();
        const ParameterStore store = ParameterStore::create(spec.model, items, activation_type(spec)).value();
        EXPECT_EQ(store.parameter_bytes(), predicted.parameters);
        EXPECT_EQ(store.packed_bytes(), predicted.packed);
        EXPECT_EQ(store.gradient_bytes(), predicted.gradients);
      }
    }
  }
}

TEST_F(ModelStageTest, payload_pools_take_the_predicted_bytes) {
  const SystemClock clock;
  for (const plan::JobSpec& spec :
       {job(), with_experts(job()), in_bfloat16(with_capacity(with_experts(job())))}) {
    const plan::Split split = cut(spec.model, {3, 3, 1});
    const auto program =
        plan::lower(plan::generate({.name = "zb-h1", .ranks = 3, .microbatches = 4}).value());
    for (const plan::RankProgram& rank : program->ranks) {
      const StageIndex stage = rank.buffers[0].stage;
      const std::vector<plan::Item>& items = split[static_cast<size_t>(stage.value)];
      const auto payloads = StagePayloads::create(
          spec, items, {.stage = stage, .slots = plan::payload_high_water(rank, stage)}, clock);
      EXPECT_EQ((*payloads)->bytes(), plan::predict_memory(spec, split, rank)->payload);
      const bool has_experts = spec.model.moe.num_experts > 0 && stage.value < 2;
      EXPECT_EQ((*payloads)->bytes() > 0, has_experts);
    }
  }
}

TEST_F(ModelStageTest, older_weight_versions_take_the_predicted_bytes) {
  kernels::ComputeThreads threads(1);
  const auto operators = kernels::make_cpu_operators(threads);
  for (const plan::JobSpec& spec : {job(), in_bfloat16(with_qk_norm(job())), with_experts(job())}) {
    for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
      const auto program = plan::lower(
          plan::generate({.name = schedule, .ranks = 3, .microbatches = 2, .updates = 5}).value());
      const std::vector<std::vector<plan::Item>> split = cut(spec.model, {3, 3, 1});
      for (const plan::RankProgram& rank : program->ranks) {
        const std::vector<plan::Item>& items = split[static_cast<size_t>(rank.rank.value)];
        ParameterStore store = ParameterStore::create(spec.model, items, activation_type(spec)).value();
        const plan::WeightVersionsHeld held = plan::weight_versions_held(rank);
        const WeightVersions versions =
            WeightVersions::create({held.by_all, held.by_forwards, rank.updates}, store, *operators).value();
        EXPECT_EQ(versions.bytes(), plan::predict_memory(spec, split, rank)->weight_versions);
      }
    }
  }
}

TEST_F(ModelStageTest, what_a_tied_matrix_takes_is_predicted_where_it_is_held) {
  const plan::ModelSpec model = with_tied_embeddings(job()).model;
  const plan::JobSpec spec = with_tied_embeddings(with_qk_norm(job()));
  for (const std::vector<size_t>& counts : std::vector<std::vector<size_t>>{{7}, {3, 3, 1}, {1, 5, 1}}) {
    for (const std::vector<plan::Item>& items : cut(model, counts)) {
      for (const plan::BackwardForm form : {plan::BackwardForm::Fused, plan::BackwardForm::Split}) {
        EXPECT_EQ(ModelStage::slot_bytes(spec, items, form), plan::activation_slot_bytes(spec, items, form));
      }
      plan::RankProgram program;
      program.buffers = {{.stage = StageIndex(0), .activation_slots = 3, .twin = {}}};
      const auto predicted = plan::predict_memory(spec, {items}, program).value();
      const ParameterStore store = ParameterStore::create(spec.model, items).value();
      EXPECT_EQ(store.parameter_bytes(), predicted.parameters);
      EXPECT_EQ(store.packed_bytes(), predicted.packed);
      EXPECT_EQ(store.gradient_bytes(), predicted.gradients);
    }
  }
}

TEST_F(ModelStageTest, a_slot_holds_exactly_the_listed_tensors) {
  const auto rounded = [](int64_t elements) { return (elements * 4 + 63) / 64 * 64; };
  const int64_t tokens = 42, hidden = 36, query = 36, key_value = 12, intermediate = 52, heads = 6;
  const int64_t embedding = rounded(tokens);
  const int64_t block = 2 * rounded(tokens * hidden) + 2 * rounded(tokens) +
                        rounded(tokens * (query + 2 * key_value)) + rounded(tokens * query) +
                        rounded(tokens * heads) + rounded(tokens * 2 * intermediate);
  const int64_t head = 2 * rounded(tokens * hidden) + rounded(tokens);
  const plan::Split split = cut(job().model, {3, 3, 1});
  using plan::BackwardForm;
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[0], BackwardForm::Fused), embedding + 2 * block);
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[1], BackwardForm::Fused), 3 * block);
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[2], BackwardForm::Fused), head);
  // What W reads of I and finds nowhere else.
  const int64_t of_block = 2 * rounded(tokens * hidden) + rounded(tokens * intermediate);
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[0], BackwardForm::Split),
            embedding + rounded(tokens * hidden) + 2 * (block + of_block));
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[1], BackwardForm::Split), 3 * (block + of_block));
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[2], BackwardForm::Split), head);
}

TEST_F(ModelStageTest, only_the_ends_of_the_model_ask_for_tokens) {
  const plan::Split split = cut(job().model, {3, 3, 1});
  EXPECT_TRUE(ModelStage::reads_tokens(job(), split[0]));
  EXPECT_FALSE(ModelStage::reads_tokens(job(), split[1]));
  EXPECT_TRUE(ModelStage::reads_tokens(job(), split[2]));
  plan::JobSpec with_documents = job();
  with_documents.data.end_of_document = 0;
  EXPECT_TRUE(ModelStage::reads_tokens(with_documents, split[1]));
  SequentialRun run(job(), split);
  EXPECT_FALSE(run.stage(0).has_loss());
  EXPECT_FALSE(run.stage(1).has_loss());
  EXPECT_TRUE(run.stage(2).has_loss());
  EXPECT_EQ(run.stage(1).index(), StageIndex(1));
}

TEST_F(ModelStageTest, wrong_tensors_are_refused_by_stage) {
  // A program that a worker was sent by mistake must end in a message, not in memory.
  SequentialRun run(job(), cut(job().model, {3, 3, 1}));
  run.begin_step(0);
  std::vector<float> memory(size_t{42} * 36);
  const kernels::TensorView good(memory.data(), kernels::DataType::Float32, {42, 36});
  const kernels::TensorView narrow(memory.data(), kernels::DataType::Float32, {42, 35});
  const StageCall base{.step = StepIndex(0), .microbatch = MicrobatchIndex(0)};
  const auto expect_refused = [&](int stage, StageCall call, const char* why) {
    const Status status = run.stage(static_cast<size_t>(stage)).forward(call);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(message(status), HasSubstr(fmt::format("stage {}", stage)));
    EXPECT_THAT(message(status), HasSubstr(why));
  };
  StageCall call = base;
  call.output = good;
  expect_refused(1, call, "input tensor missing");
  call.input = narrow;
  expect_refused(1, call, "[42, 36]");
  call.input = good;
  expect_refused(0, call, "input tensor given");
  call.slot = 4;
  expect_refused(1, call, "slot 4 of 4");
}

TEST_F(ModelStageTest, a_backward_in_halves_gives_the_bits_of_the_whole_one) {
  // Zero-bubble schedules move the weight gradient; the loss curve must not see it.
  std::vector<plan::JobSpec> jobs = {
      job(),
      with_tied_embeddings(job()),
      with_qk_norm(job()),
      with_dropout(job()),
      with_documents(job()),
      with_experts(with_norms_across_heads(job())),
      with_capacity(with_experts(with_dropout(with_uneven_microbatches(job())))),
      with_shared_experts(job()),
      with_shared_experts(with_dropout(with_uneven_microbatches(job()))),
      with_tied_embeddings(with_qk_norm(with_dropout(with_uneven_microbatches(with_documents(job())))))};
  for (size_t i = 0, plain = jobs.size(); i < plain; ++i) jobs.push_back(in_bfloat16(jobs[i]));
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    const plan::JobSpec& spec = jobs[i];
    const int64_t microbatches = spec.microbatches();
    SequentialRun whole(spec, cut(spec.model));
    whole.run_step(1);
    const Outcome expected = Outcome::of(whole);
    ASSERT_TRUE(std::isfinite(expected.loss));
    for (const std::vector<size_t>& counts :
         std::vector<std::vector<size_t>>{{7}, {2, 2, 2, 1}, {1, 5, 1}, {1, 1, 1, 1, 1, 1, 1}}) {
      SequentialRun run(spec, cut(spec.model, counts), 2, plan::BackwardForm::Split);
      run.begin_step(1);
      // All I before the first W: what W reads must have outlived every other use of the workspace.
      for (int64_t m = 0; m < microbatches; ++m) run.forward(m);
      for (int64_t m = 0; m < microbatches; ++m) run.input_gradient(m);
      for (int64_t m = 0; m < microbatches; ++m) run.weight_gradient(m);
      run.sum_tied_gradients();
      expect_same_bits(Outcome::of(run), expected);
    }
  }
}

TEST_F(ModelStageTest, an_input_gradient_passes_on_the_bits_of_the_whole_backward) {
  for (const plan::JobSpec& spec : {with_qk_norm(with_dropout(job())), in_bfloat16(job())}) {
    SequentialRun whole(spec, cut(spec.model, {3, 3, 1}));
    SequentialRun halves(spec, cut(spec.model, {3, 3, 1}), 1, plan::BackwardForm::Split);
    for (SequentialRun* run : {&whole, &halves}) {
      run->begin_step(0);
      run->forward(0);
    }
    whole.backward(0);
    halves.input_gradient(0);
    for (size_t stage = 1; stage < whole.stages(); ++stage) {
      const kernels::TensorView a = whole.gradient(stage), b = halves.gradient(stage);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0) << stage;
    }
  }
}

TEST_F(ModelStageTest, whole_and_split_backwards_mix_on_one_stage) {
  // DualPipe runs both kinds of the same stage.
  const plan::JobSpec spec = with_documents(job());
  SequentialRun naive(spec, cut(spec.model, {3, 4}));
  naive.run_step(2);
  SequentialRun mixed(spec, cut(spec.model, {3, 4}), 1, plan::BackwardForm::Split);
  mixed.begin_step(2);
  for (int64_t m = 0; m < 4; ++m) mixed.forward(m);
  mixed.input_gradient(0);
  mixed.weight_gradient(0);
  mixed.backward(1);
  mixed.input_gradient(2);
  mixed.input_gradient(3);
  mixed.weight_gradient(2);
  mixed.weight_gradient(3);
  expect_same_bits(Outcome::of(mixed), Outcome::of(naive));
}

TEST_F(ModelStageTest, a_split_backward_without_room_in_the_slots_is_refused) {
  SequentialRun run(job(), cut(job().model));
  const StageCall call{.step = StepIndex(0), .microbatch = MicrobatchIndex(2)};
  for (const Status& status : {run.stage(0).input_gradient(call), run.stage(0).weight_gradient(call)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(message(status), HasSubstr("laid out for whole backwards"));
  }
}

TEST_F(ModelStageTest, data_that_runs_out_is_the_error_of_the_forward) {
  SequentialRun run(job(), cut(job().model));
  run.begin_step(23);  // 190 windows: 23 steps of 8
  const Status status =
      run.stage(0).forward({.step = StepIndex(23), .microbatch = MicrobatchIndex(0), .slot = 0});
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(message(status), HasSubstr("step 23"));
}

TEST_F(ModelStageTest, gradients_are_those_of_the_mean_over_all_tokens_of_the_step) {
  // Splitting a batch into more microbatches must not scale the gradients.
  plan::JobSpec halves = job();
  plan::JobSpec whole = job();
  whole.train.microbatch_size = 8;
  SequentialRun many(halves, cut(halves.model));
  SequentialRun one(whole, cut(whole.model));
  many.run_step(0);
  one.run_step(0);
  EXPECT_NEAR(many.loss(), one.loss(), 1e-5);
  const std::vector<Parameter> a = many.parameters();
  const std::vector<Parameter> b = one.parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    double difference = 0, scale = 0;
    for (int64_t k = 0; k < a[i].gradient.elements(); ++k) {
      difference = std::max<double>(difference, std::abs(a[i].gradient.f32()[k] - b[i].gradient.f32()[k]));
      scale = std::max<double>(scale, std::abs(b[i].gradient.f32()[k]));
    }
    EXPECT_LT(difference, 1e-5 * scale) << a[i].spec.name;
  }
}

}  // namespace
}  // namespace penstock::worker
