// Norms of queries and keys, a head size of its own and a tied matrix against PyTorch in float64, to 1e-5 relative.
#include <gtest/gtest.h>

#include "worker/model/testing/llama_fixture.h"
#include "worker/model/testing/sequential_run.h"

namespace penstock::worker {
namespace {

constexpr double kTolerance = 1e-5;

class Qwen3FixtureTest : public ::testing::TestWithParam<int64_t> {};  // microbatch size

TEST_P(Qwen3FixtureTest, loss_and_gradients_agree) {
  const LlamaFixture fixture(PENSTOCK_SOURCE_DIR "/tests/fixtures/llama", "qwen3");
  const plan::JobSpec job = fixture.job(GetParam());
  ASSERT_TRUE(job.model.qk_norm && job.model.tie_word_embeddings);
  SequentialRun run(job, cut(job.model));
  for (const Parameter& parameter : run.parameters()) {
    const std::span<const float> initial = fixture.tensor("initial/" + parameter.spec.name);
    ASSERT_EQ(static_cast<int64_t>(initial.size()), parameter.spec.elements()) << parameter.spec.name;
    std::copy(initial.begin(), initial.end(), parameter.weight.f32());
  }
  run.run_step(0);
  EXPECT_NEAR(run.loss(), fixture.number("loss.0"), kTolerance * fixture.number("loss.0"));
  ASSERT_EQ(run.parameters().size(), 24u);
  for (const Parameter& parameter : run.parameters()) {
    const std::span<const float> expected = fixture.tensor("gradient/" + parameter.spec.name);
    EXPECT_LT(relative_error(values_of(parameter.gradient), expected), kTolerance) << parameter.spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(MicrobatchSizes, Qwen3FixtureTest, ::testing::Values(4, 3, 1));

}  // namespace
}  // namespace penstock::worker
