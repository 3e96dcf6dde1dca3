#include "worker/model/model_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "plan/cost/memory.h"
#include "plan/schedule/lowered.h"
#include "worker/model/testing/sequential_run.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

// A model whose sizes are no multiples of anything convenient, on a text of random bytes.
class ModelStageTest : public ::testing::Test {
 protected:
  ModelStageTest() {
    path_ = std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_stage_{}.txt", ::getpid());
    std::mt19937 random(4);
    std::string text(4000, 0);
    for (char& c : text) c = static_cast<char>(random() % 128);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~ModelStageTest() override { std::filesystem::remove(path_); }

  plan::JobSpec job() const {
    plan::JobSpec job;
    job.model.vocab_size = 131;
    job.model.hidden_size = 36;
    job.model.num_hidden_layers = 5;
    job.model.num_attention_heads = 6;
    job.model.num_key_value_heads = 2;
    job.model.intermediate_size = 52;
    job.model.initializer_range = 0.2;
    job.data.sources = {path_};
    job.data.sequence_length = 21;
    job.train.global_batch_size = 8;
    job.train.microbatch_size = 2;
    job.train.seed = 1;
    return job;
  }

  std::filesystem::path path_;
};

// What a step leaves: the loss and all gradients, to be compared bit for bit.
struct Outcome {
  double loss = 0;
  std::vector<std::vector<float>> gradients;

  static Outcome of(const SequentialRun& run) {
    Outcome outcome{run.loss_sum(), {}};
    for (const Parameter& parameter : run.parameters()) {
      const float* begin = parameter.gradient.f32();
      outcome.gradients.emplace_back(begin, begin + parameter.gradient.elements());
    }
    return outcome;
  }
};

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(std::bit_cast<uint64_t>(a.loss), std::bit_cast<uint64_t>(b.loss)) << a.loss << " " << b.loss;
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].size(), b.gradients[i].size());
    const size_t bytes = a.gradients[i].size() * sizeof(float);
    EXPECT_EQ(std::memcmp(a.gradients[i].data(), b.gradients[i].data(), bytes), 0) << "parameter " << i;
  }
}

TEST_F(ModelStageTest, any_split_gives_the_same_bits) {
  // The numerics contract: moving a stage boundary must not move the loss curve.
  SequentialRun whole(job(), cut(job().model));
  whole.run_step(0);
  const Outcome expected = Outcome::of(whole);
  ASSERT_TRUE(std::isfinite(expected.loss));
  for (const std::vector<size_t>& counts :
       std::vector<std::vector<size_t>>{{2, 2, 2, 1}, {1, 1, 1, 1, 1, 1, 1}, {1, 5, 1}, {6, 1}, {3, 4}}) {
    SequentialRun run(job(), cut(job().model, counts));
    run.run_step(0);
    expect_same_bits(Outcome::of(run), expected);
  }
}

TEST_F(ModelStageTest, any_number_of_threads_gives_the_same_bits) {
  SequentialRun one(job(), cut(job().model, {4, 3}), 1);
  one.run_step(0);
  for (const int threads : {2, 3}) {
    SequentialRun run(job(), cut(job().model, {4, 3}), threads);
    run.run_step(0);
    expect_same_bits(Outcome::of(run), Outcome::of(one));
  }
}

TEST_F(ModelStageTest, all_forwards_before_all_backwards_gives_the_same_bits) {
  // gpipe against naive: every microbatch is alive at once, each in its own slot.
  SequentialRun naive(job(), cut(job().model, {3, 4}));
  naive.run_step(2);
  SequentialRun gpipe(job(), cut(job().model, {3, 4}));
  gpipe.begin_step(2);
  for (int64_t i = 0; i < 4; ++i) gpipe.forward(i);
  for (int64_t i = 0; i < 4; ++i) gpipe.backward(i);
  expect_same_bits(Outcome::of(gpipe), Outcome::of(naive));
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
  for (const std::vector<size_t>& counts : std::vector<std::vector<size_t>>{{7}, {3, 3, 1}, {1, 5, 1}}) {
    for (const std::vector<plan::Item>& items : cut(job().model, counts)) {
      EXPECT_EQ(ModelStage::slot_bytes(job(), items), plan::activation_slot_bytes(job(), items));
      plan::RankProgram program;
      program.buffers = {{StageIndex(0), 3}};
      const auto predicted = plan::predict_memory(job(), {items}, program).value();
      const ParameterStore store = ParameterStore::create(job().model, items).value();
      EXPECT_EQ(store.parameter_bytes(), predicted.parameters);
      EXPECT_EQ(store.gradient_bytes(), predicted.gradients);
    }
  }
}

TEST_F(ModelStageTest, a_slot_holds_exactly_the_listed_tensors) {
  const auto rounded = [](int64_t elements) { return (elements * 4 + 63) / 64 * 64; };
  const int64_t tokens = 42, hidden = 36, query = 36, key_value = 12, intermediate = 52, heads = 6;
  const int64_t embedding = rounded(tokens);
  const int64_t block = 2 * rounded(tokens * hidden) + 2 * rounded(tokens) + 2 * rounded(tokens * query) +
                        2 * rounded(tokens * key_value) + rounded(tokens * heads) +
                        2 * rounded(tokens * intermediate);
  const int64_t head = rounded(tokens * hidden) + 3 * rounded(tokens);
  const plan::Split split = cut(job().model, {3, 3, 1});
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[0]), embedding + 2 * block);
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[1]), 3 * block);
  EXPECT_EQ(ModelStage::slot_bytes(job(), split[2]), head);
}

TEST_F(ModelStageTest, only_the_ends_of_the_model_ask_for_tokens) {
  const plan::Split split = cut(job().model, {3, 3, 1});
  EXPECT_TRUE(ModelStage::reads_tokens(split[0]));
  EXPECT_FALSE(ModelStage::reads_tokens(split[1]));
  EXPECT_TRUE(ModelStage::reads_tokens(split[2]));
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

TEST_F(ModelStageTest, a_split_backward_is_said_to_be_unbuilt) {
  SequentialRun run(job(), cut(job().model));
  EXPECT_EQ(run.stage(0).input_gradient({}).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(run.stage(0).weight_gradient({}).code(), StatusCode::kUnimplemented);
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
