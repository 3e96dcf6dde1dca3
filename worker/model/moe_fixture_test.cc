// Routed experts and their two losses against PyTorch in float64, to 1e-5 relative.
#include <gtest/gtest.h>

#include "worker/model/blocks/experts.h"
#include "worker/model/testing/llama_fixture.h"
#include "worker/model/testing/sequential_run.h"

namespace penstock::worker {
namespace {

constexpr double kTolerance = 1e-5;

class MoeFixtureTest : public ::testing::TestWithParam<int64_t> {  // microbatch size
 protected:
  MoeFixtureTest()
      : fixture_(PENSTOCK_SOURCE_DIR "/tests/fixtures/llama", "moe"), job_(fixture_.job(GetParam())) {}

  void load_weights(const SequentialRun& run) const {
    for (const Parameter& parameter : run.parameters()) {
      const std::span<const float> initial = fixture_.tensor("initial/" + parameter.spec.name);
      ASSERT_EQ(static_cast<int64_t>(initial.size()), parameter.spec.elements()) << parameter.spec.name;
      std::copy(initial.begin(), initial.end(), parameter.weight.f32());
    }
  }

  const LlamaFixture fixture_;
  plan::JobSpec job_;
};

TEST_P(MoeFixtureTest, loss_and_gradients_agree) {
  SequentialRun run(job_, cut(job_.model));
  load_weights(run);
  run.run_step(0);
  EXPECT_NEAR(run.loss(), fixture_.number("loss.0"), kTolerance * fixture_.number("loss.0"));
  ASSERT_EQ(run.parameters().size(), 1u + 11 + 9 + 3 * 5 + 2);
  for (const Parameter& parameter : run.parameters()) {
    const std::span<const float> expected = fixture_.tensor("gradient/" + parameter.spec.name);
    EXPECT_LT(relative_error(values_of(parameter.gradient), expected), kTolerance) << parameter.spec.name;
  }
}

TEST_P(MoeFixtureTest, the_experts_losses_agree) {
  SequentialRun run(job_, cut(job_.model));
  load_weights(run);
  run.run_step(0);
  const std::vector<const ExpertLoad*> loads = run.stage(0).expert_loads(StepIndex(0));
  ASSERT_EQ(loads.size(), 1u);
  const ExpertLoad& load = *loads[0];
  EXPECT_EQ(load.layer, LayerIndex(1));
  EXPECT_EQ(load.sequences, job_.train.global_batch_size);
  EXPECT_EQ(load.dropped, 0);
  const double balance = load.balance / static_cast<double>(load.sequences);
  const double z = load.z / static_cast<double>(job_.tokens_per_step());
  EXPECT_NEAR(fixture_.number("router_aux_loss_coef") * balance + fixture_.number("router_z_loss_coef") * z,
              fixture_.number("expert_losses"), kTolerance);
  int64_t rows = 0;
  for (const int64_t each : load.rows) rows += each;
  EXPECT_EQ(rows,
            2 * job_.microbatches() * job_.tokens_per_microbatch());  // filled-up sequences are routed too
}

TEST_P(MoeFixtureTest, bfloat16_agrees_within_its_roundings) {
  // Here no token is so close to a draw that a rounding sends it to another expert.
  job_.train.dtype = "bfloat16";
  SequentialRun run(job_, cut(job_.model));
  load_weights(run);
  run.run_step(0);
  EXPECT_NEAR(run.loss(), fixture_.number("loss.0"), 5e-3 * fixture_.number("loss.0"));
  for (const Parameter& parameter : run.parameters()) {
    const std::span<const float> expected = fixture_.tensor("gradient/" + parameter.spec.name);
    EXPECT_LT(relative_error(values_of(parameter.gradient), expected), 0.1) << parameter.spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(MicrobatchSizes, MoeFixtureTest, ::testing::Values(4, 3, 1));

}  // namespace
}  // namespace penstock::worker
