#include "worker/checkpoint/training_state.h"

#include <gmock/gmock.h>

#include "base/checkpoint/manifest.h"
#include "plan/spec/parameters.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

TEST(TrainingState, tensors_of_a_mixtral_bear_the_names_that_its_readers_ask_for) {
  // A checkpoint is a folder of Hugging Face too, and theirs are not ours.
  plan::ModelSpec model;
  model.vocab_size = 8;
  model.hidden_size = 4;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 2;
  model.intermediate_size = 6;
  model.max_position_embeddings = 8;
  model.moe = {.num_experts = 2,
               .num_experts_per_tok = 1,
               .moe_intermediate_size = 6,
               .layers = {0},
               .norm_topk_prob = true};
  ASSERT_TRUE(plan::is_mixtral(model));
  const ParameterStore store = ParameterStore::create(model, plan::model_items(model)).value();
  const std::vector<MomentsOfParameter> moments(store.parameters().size(),
                                                {store.parameters()[0].weight, store.parameters()[0].weight});
  const TrainingState state = training_state_of(store, moments);
  const std::vector<plan::ParameterSpec> expected = plan::model_parameters(model);
  ASSERT_EQ(state.weights.size(), expected.size());
  int of_experts = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(state.weights[i].name, expected[i].stored_name);
    EXPECT_EQ(state.moments[2 * i].name, first_moment_name(expected[i].stored_name));
    of_experts += state.weights[i].name.find("block_sparse_moe") != std::string::npos;
  }
  EXPECT_EQ(of_experts, 7);  // the router, and three matrices of each expert
  const TrainingState part = part_of(state, store.parameters(), store.parameters());
  EXPECT_EQ(part.weights.size(), expected.size());
  EXPECT_EQ(part.moments.size(), 2 * expected.size());
}

}  // namespace
}  // namespace penstock::worker
