#include "plan/spec/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/rank_place.h"

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;

ModelSpec small_model() {
  ModelSpec model;
  model.vocab_size = 256;
  model.hidden_size = 16;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.intermediate_size = 24;
  return model;
}

TEST(Parameters, names_and_shapes_are_those_of_hugging_face_llama) {
  // Names key the initialisation and the order keys the weights digest: a change of either is a change of
  // every run.
  std::vector<std::string> lines;
  for (const ParameterSpec& parameter : model_parameters(small_model())) {
    std::string line = parameter.name;
    for (const int64_t extent : parameter.shape) line += " " + std::to_string(extent);
    if (lines.size() < 10) lines.push_back(line);
  }
  EXPECT_THAT(lines, ElementsAre("model.embed_tokens.weight 256 16",                   //
                                 "model.layers.0.input_layernorm.weight 16",           //
                                 "model.layers.0.self_attn.q_proj.weight 16 16",       //
                                 "model.layers.0.self_attn.k_proj.weight 8 16",        //
                                 "model.layers.0.self_attn.v_proj.weight 8 16",        //
                                 "model.layers.0.self_attn.o_proj.weight 16 16",       //
                                 "model.layers.0.post_attention_layernorm.weight 16",  //
                                 "model.layers.0.mlp.gate_proj.weight 24 16",          //
                                 "model.layers.0.mlp.up_proj.weight 24 16",            //
                                 "model.layers.0.mlp.down_proj.weight 16 24"));
}

TEST(Parameters, the_model_ends_with_its_head) {
  const std::vector<ParameterSpec> parameters = model_parameters(small_model());
  ASSERT_EQ(parameters.size(), 1u + 2 * 9 + 2);
  EXPECT_EQ(parameters[19].name, "model.norm.weight");
  EXPECT_EQ(parameters[20].name, "lm_head.weight");
  EXPECT_EQ(parameters[20].elements(), 256 * 16);
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_EQ(parameters[i].index, static_cast<int32_t>(i));
}

ModelSpec small_experts() {
  ModelSpec model = small_model();
  model.moe.num_experts = 2;
  model.moe.num_experts_per_tok = 1;
  model.moe.moe_intermediate_size = 12;
  model.moe.layers = {1};
  return model;
}

TEST(Parameters, experts_have_the_names_and_shapes_of_olmoe_and_qwen3_moe) {
  std::vector<std::string> lines;
  for (const ParameterSpec& parameter : model_parameters(small_experts())) {
    std::string line = parameter.name;
    for (const int64_t extent : parameter.shape) line += " " + std::to_string(extent);
    if (line.starts_with("model.layers.1.mlp.")) lines.push_back(line + (parameter.packed ? " packed" : ""));
    EXPECT_EQ(parameter.stored_name, parameter.name);
  }
  EXPECT_THAT(lines, ElementsAre("model.layers.1.mlp.gate.weight 2 16",                         //
                                 "model.layers.1.mlp.experts.0.gate_proj.weight 12 16 packed",  //
                                 "model.layers.1.mlp.experts.0.up_proj.weight 12 16 packed",    //
                                 "model.layers.1.mlp.experts.0.down_proj.weight 16 12 packed",  //
                                 "model.layers.1.mlp.experts.1.gate_proj.weight 12 16 packed",  //
                                 "model.layers.1.mlp.experts.1.up_proj.weight 12 16 packed",    //
                                 "model.layers.1.mlp.experts.1.down_proj.weight 16 12 packed"));
}

TEST(Parameters, shared_experts_are_one_dense_network_between_the_router_and_the_routed_ones) {
  ModelSpec model = small_experts();
  model.moe.layers = {0, 1};
  model.moe.norm_topk_prob = true;  // a Mixtral, were they not there
  model.moe.num_shared_experts = 3;
  std::vector<std::string> lines;
  for (const ParameterSpec& parameter : model_parameters(model)) {
    EXPECT_EQ(parameter.stored_name, parameter.name);
    if (!parameter.name.starts_with("model.layers.1.mlp.")) continue;
    std::string line = parameter.name.substr(19);
    for (const int64_t extent : parameter.shape) line += " " + std::to_string(extent);
    lines.push_back(line + (parameter.is_dense() ? " dense" : ""));
  }
  lines.resize(5);
  EXPECT_THAT(lines, ElementsAre("gate.weight 2 16 dense",                       //
                                 "shared_experts.gate_proj.weight 36 16 dense",  //
                                 "shared_experts.up_proj.weight 36 16 dense",    //
                                 "shared_experts.down_proj.weight 16 36 dense",  //
                                 "experts.0.gate_proj.weight 12 16"));
}

TEST(Parameters, a_model_that_is_mixtrals_is_stored_with_mixtrals_names) {
  ModelSpec model = small_experts();
  model.moe.layers = {0, 1};
  model.moe.norm_topk_prob = true;
  const std::vector<ParameterSpec> parameters = model_parameters(model);
  const auto stored = [&](const std::string& name) {
    for (const ParameterSpec& each : parameters) {
      if (each.name == name) return each.stored_name;
    }
    return std::string();
  };
  EXPECT_EQ(stored("model.layers.0.mlp.gate.weight"), "model.layers.0.block_sparse_moe.gate.weight");
  EXPECT_EQ(stored("model.layers.1.mlp.experts.1.gate_proj.weight"),
            "model.layers.1.block_sparse_moe.experts.1.w1.weight");
  EXPECT_EQ(stored("model.layers.1.mlp.experts.1.down_proj.weight"),
            "model.layers.1.block_sparse_moe.experts.1.w2.weight");
  EXPECT_EQ(stored("model.layers.1.mlp.experts.1.up_proj.weight"),
            "model.layers.1.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(stored("model.layers.1.self_attn.q_proj.weight"), "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(stored("lm_head.weight"), "lm_head.weight");
}

TEST(Parameters, norms_across_heads_have_a_weight_for_every_head) {
  ModelSpec model = small_model();
  model.qk_norm = model.qk_norm_across_heads = true;
  const std::vector<ParameterSpec> parameters = model_parameters(model);
  EXPECT_THAT(parameters[6].shape, ElementsAre(16));
  EXPECT_THAT(parameters[7].shape, ElementsAre(8));
}

TEST(Parameters, norms_of_queries_and_keys_stand_where_qwen3_has_them) {
  ModelSpec model = small_model();
  model.qk_norm = true;
  model.head_dim = 6;
  const std::vector<ParameterSpec> parameters = model_parameters(model);
  ASSERT_EQ(parameters.size(), 1u + 2 * 11 + 2);
  EXPECT_EQ(parameters[5].name, "model.layers.0.self_attn.o_proj.weight");
  EXPECT_EQ(parameters[6].name, "model.layers.0.self_attn.q_norm.weight");
  EXPECT_EQ(parameters[7].name, "model.layers.0.self_attn.k_norm.weight");
  EXPECT_THAT(parameters[2].shape, ElementsAre(4 * 6, 16));
  EXPECT_THAT(parameters[5].shape, ElementsAre(16, 4 * 6));
  EXPECT_THAT(parameters[7].shape, ElementsAre(6));
  EXPECT_TRUE(parameters[7].initialised_to_one);
}

TEST(Parameters, a_tied_head_has_no_matrix_of_its_own) {
  ModelSpec model = small_model();
  model.tie_word_embeddings = true;
  EXPECT_EQ(model_parameters(model).back().name, "model.norm.weight");
  const Item head{ItemKind::Head, {}};
  EXPECT_EQ(parameters_of(model, {head}).size(), 1u);
  EXPECT_TRUE(holds_tied_head(model, {head}));
  EXPECT_FALSE(holds_tied_head(small_model(), {head}));
  EXPECT_FALSE(holds_tied_head(model, {{ItemKind::Embedding, {}}}));
}

TEST(Parameters, a_star_stands_for_any_characters) {
  EXPECT_TRUE(matches_pattern("model.norm.weight", "*norm.weight"));
  EXPECT_TRUE(matches_pattern("model.norm.weight", "model.norm.weight"));
  EXPECT_TRUE(matches_pattern("model.norm.weight", "*"));
  EXPECT_TRUE(matches_pattern("model.layers.3.self_attn.k_norm.weight", "*.layers.*.self_attn.*"));
  EXPECT_TRUE(matches_pattern("aab", "*ab"));
  EXPECT_TRUE(matches_pattern("", "**"));
  EXPECT_FALSE(matches_pattern("model.norm.weight", "norm*"));
  EXPECT_FALSE(matches_pattern("model.norm.weight", "model.norm"));
  EXPECT_FALSE(matches_pattern("model.norm", "model.norm.weight"));
  EXPECT_FALSE(matches_pattern("abc", ""));
}

TEST(Parameters, only_norms_start_at_one_and_do_not_decay) {
  for (const ParameterSpec& parameter : model_parameters(small_model())) {
    const bool norm = parameter.name.find("norm") != std::string::npos;
    EXPECT_EQ(parameter.initialised_to_one, norm) << parameter.name;
    EXPECT_EQ(decays(OptimizerSpec{}, parameter.name), !norm) << parameter.name;
    EXPECT_EQ(parameter.shape.size(), norm ? 1u : 2u) << parameter.name;
  }
}

TEST(Parameters, those_of_a_stage_keep_their_places_in_the_model) {
  const std::vector<Item> items = {{ItemKind::Head, {}}, {ItemKind::Block, LayerIndex(1)}};
  const std::vector<ParameterSpec> owned = parameters_of(small_model(), items);
  ASSERT_EQ(owned.size(), 9u + 2);
  EXPECT_EQ(owned.front().index, 10);
  EXPECT_EQ(owned.front().name, "model.layers.1.input_layernorm.weight");
  EXPECT_EQ(owned.back().index, 20);
}

TEST(Parameters, ranks_that_share_out_experts_hold_each_once_and_the_rest_all) {
  JobSpec job;
  job.model = small_experts();
  job.model.moe.num_experts = 6;
  job.parallel.pipeline = 2;
  job.parallel.expert = 3;
  job.parallel.data = 2;
  std::vector<int> holders(model_parameters(job.model).size());
  for (int64_t pipeline = 0; pipeline < 6; ++pipeline) {
    const RankPlace place = place_of_rank(job.parallel, RankIndex(6 + pipeline));
    for (const ParameterSpec& each :
         parameters_of(job.model, model_items(job.model), experts_at(job, place))) {
      ++holders[static_cast<size_t>(each.index)];
      // Rank 6 + 4 is in the second row of three: experts 2 and 3, as rank 6 + 1.
      const bool fourth = pipeline == 4;
      EXPECT_TRUE(!fourth || each.is_dense() || each.expert == 2 || each.expert == 3) << each.name;
    }
  }
  for (const ParameterSpec& each : model_parameters(job.model)) {
    const bool routed = each.name.find(".experts.") != std::string::npos;
    EXPECT_EQ(each.is_dense(), !routed) << each.name;
    EXPECT_EQ(holders[static_cast<size_t>(each.index)], routed ? 2 : 6) << each.name;
  }
}

}  // namespace
}  // namespace penstock::plan
