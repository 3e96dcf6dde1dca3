// Logits, loss and the gradient of every parameter against PyTorch in float64, to 1e-5 relative.
#include "worker/model/testing/llama_fixture.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/model/testing/sequential_run.h"

namespace penstock::worker {
namespace {

constexpr double kTolerance = 1e-5;

class LlamaFixtureTest : public ::testing::TestWithParam<int64_t> {
 protected:
  LlamaFixtureTest()
      : fixture_(PENSTOCK_SOURCE_DIR "/tests/fixtures/llama"), job_(fixture_.job(GetParam())) {}

  void load_weights(SequentialRun& run) const {
    for (const Parameter& parameter : run.parameters()) {
      const std::span<const float> initial = fixture_.tensor("initial/" + parameter.spec.name);
      ASSERT_EQ(static_cast<int64_t>(initial.size()), parameter.spec.elements()) << parameter.spec.name;
      std::copy(initial.begin(), initial.end(), parameter.weight.f32());
    }
  }

  LlamaFixture fixture_;
  plan::JobSpec job_;
};

TEST_P(LlamaFixtureTest, loss_and_gradients_agree) {
  SequentialRun run(job_, cut(job_.model));
  load_weights(run);
  run.run_step(0);
  EXPECT_NEAR(run.loss(), fixture_.number("loss.0"), kTolerance * fixture_.number("loss.0"));
  ASSERT_EQ(run.parameters().size(), 21u);
  for (const Parameter& parameter : run.parameters()) {
    const std::span<const float> expected = fixture_.tensor("gradient/" + parameter.spec.name);
    EXPECT_LT(relative_error(values_of(parameter.gradient), expected), kTolerance) << parameter.spec.name;
  }
}

TEST_P(LlamaFixtureTest, bfloat16_agrees_within_its_roundings) {
  // A value is rounded by up to 2^-9 of it; a forward and a backward of this model round some fifty times in a row.
  job_.train.dtype = "bfloat16";
  SequentialRun run(job_, cut(job_.model));
  load_weights(run);
  run.run_step(0);
  EXPECT_NEAR(run.loss(), fixture_.number("loss.0"), 2e-3 * fixture_.number("loss.0"));
  for (const Parameter& parameter : run.parameters()) {
    const std::span<const float> expected = fixture_.tensor("gradient/" + parameter.spec.name);
    EXPECT_LT(relative_error(values_of(parameter.gradient), expected), 5e-2) << parameter.spec.name;
  }
}

TEST_P(LlamaFixtureTest, logits_agree) {
  // Training never forms them: here the head's own two operations do.
  plan::Split split = cut(job_.model, {3, 1});
  SequentialRun run(job_, split);
  load_weights(run);
  run.begin_step(0);

  const int64_t tokens = job_.tokens_per_microbatch();
  const auto matrix = [&](std::vector<float>& memory, int64_t columns) {
    memory.resize(static_cast<size_t>(tokens * columns));
    return kernels::TensorView(memory.data(), kernels::DataType::Float32, {tokens, columns});
  };
  std::vector<float> residual, normed, logits, inverse_rms(static_cast<size_t>(tokens)), all;
  const kernels::TensorView residual_view = matrix(residual, job_.model.hidden_size);
  const kernels::TensorView normed_view = matrix(normed, job_.model.hidden_size);
  const kernels::TensorView logits_view = matrix(logits, job_.model.vocab_size);
  const kernels::TensorView inverse_rms_view(inverse_rms.data(), kernels::DataType::Float32, {tokens});
  for (int64_t microbatch = 0; microbatch < job_.microbatches(); ++microbatch) {
    ASSERT_TRUE(run.stage(0)
                    .forward({.step = StepIndex(0),
                              .microbatch = MicrobatchIndex(microbatch),
                              .slot = 0,
                              .output = residual_view})
                    .ok());
    run.operators().rms_norm(residual_view, run.parameters(1).at("model.norm.weight").weight,
                             job_.model.rms_norm_eps, normed_view, inverse_rms_view);
    run.operators().linear(normed_view, run.parameters(1).at("lm_head.weight").packed.weight, logits_view);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  EXPECT_LT(relative_error(all, fixture_.tensor("logits")), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(MicrobatchSizes, LlamaFixtureTest, ::testing::Values(4, 2, 1));

}  // namespace
}  // namespace penstock::worker
