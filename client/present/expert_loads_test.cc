#include "client/present/expert_loads.h"

#include <gmock/gmock.h>

namespace penstock::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kJob =
    "name: tiny\n"
    "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 16,\n"
    "  max_position_embeddings: 8,\n"
    "  moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8, layers: [1, 3]}}\n"
    "data: {source: /data/text.txt, sequence_length: 8}\n"
    "train: {steps: 100, global_batch_size: 8, microbatch_size: 1, dtype: float32}\n"
    "parallel: {pipeline: 2, expert: 2}\n";

v1::LayerLoad& add_layer(v1::AttemptMeasurements& attempt, int layer, int stage,
                         const std::vector<int64_t>& rows) {
  v1::LayerLoad& load = *attempt.add_expert_loads();
  load.set_layer(layer);
  load.set_stage(stage);
  load.set_steps(10);
  load.mutable_rows()->Add(rows.begin(), rows.end());
  return load;
}

TEST(LayerRows, are_those_of_a_mean_step) {
  v1::AttemptMeasurements attempt;
  add_layer(attempt, 1, 0, {100, 400, 200, 100});
  add_layer(attempt, 3, 1, {0, 0, 0, 0});
  attempt.add_expert_loads();  // of no steps
  const std::vector<LayerRows> layers = layer_rows(attempt);
  ASSERT_THAT(layers, SizeIs(2));
  EXPECT_EQ(layers[0].layer, 1);
  EXPECT_EQ(layers[0].experts, 4);
  EXPECT_EQ(layers[0].least, 10);
  EXPECT_EQ(layers[0].mean, 20);
  EXPECT_EQ(layers[0].most, 40);
  EXPECT_EQ(layers[0].ratio, 2);
  EXPECT_EQ(layers[1].ratio, 0);
}

TEST(LoadOfRank, is_that_of_its_own_experts_in_its_stage) {
  // Of pipelines 0 and 1 rank 2p has experts 0 and 1, rank 2p + 1 experts 2 and 3.
  const plan::JobSpec job = *plan::parse_job_spec(kJob);
  v1::AttemptMeasurements attempt;
  add_layer(attempt, 1, 0, {10, 20, 30, 60});
  add_layer(attempt, 3, 1, {50, 50, 0, 0});
  EXPECT_DOUBLE_EQ(load_of_rank(attempt, job, 0, 0), 0.5);
  EXPECT_DOUBLE_EQ(load_of_rank(attempt, job, 0, 1), 1.5);
  EXPECT_DOUBLE_EQ(load_of_rank(attempt, job, 1, 2), 2);
  EXPECT_EQ(load_of_rank(attempt, job, 7, 0), 0);
}

TEST(RoutedStages, are_the_history) {
  v1::AttemptMeasurements attempt;
  v1::StageHistory& stage = *attempt.mutable_history()->add_stages();
  stage.set_stage(3);
  for (const float value : {1.f, 1.5f}) {
    stage.add_load(value);
    stage.add_seconds(2 * value);
  }
  const std::vector<plan::RoutedStage> stages = routed_stages(attempt);
  ASSERT_THAT(stages, SizeIs(1));
  EXPECT_EQ(stages[0].stage, 3);
  EXPECT_THAT(stages[0].load, ElementsAre(1, 1.5));
  EXPECT_THAT(stages[0].seconds, ElementsAre(2, 3));
  EXPECT_THAT(routed_stages({}), IsEmpty());
}

}  // namespace
}  // namespace penstock::client
