#include "plan/interop/hugging_face.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "plan/spec/model_source.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string fixture(const std::string& name) {
  std::ifstream file(std::string(PENSTOCK_SOURCE_DIR) + "/tests/fixtures/hugging_face/" + name +
                     "/config.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

// What transformers wrote, with some keys changed; null takes a key away.
std::string with(const Json& changes, const std::string& name = "llama") {
  Json config = Json::parse(fixture(name));
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null()) {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  return config.dump();
}

std::string problem(const std::string& config) {
  const auto model = model_from_hugging_face(config);
  return model.ok() ? "" : message(model.status());
}

TEST(HuggingFace, configuration_of_a_llama_is_read) {
  const auto model = model_from_hugging_face(fixture("llama"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->vocab_size, 256);
  EXPECT_EQ(model->hidden_size, 16);
  EXPECT_EQ(model->num_hidden_layers, 2);
  EXPECT_EQ(model->num_attention_heads, 4);
  EXPECT_EQ(model->num_key_value_heads, 2);
  EXPECT_EQ(model->intermediate_size, 24);
  EXPECT_EQ(model->max_position_embeddings, 64);
  EXPECT_EQ(model->rope_theta, 500000);  // in rope_parameters
  EXPECT_EQ(model->rms_norm_eps, 1e-5);
  EXPECT_EQ(model->initializer_range, 0.02);
  EXPECT_EQ(model->head_dim, 0);
  EXPECT_FALSE(model->tie_word_embeddings);
  EXPECT_FALSE(model->qk_norm);
}

TEST(HuggingFace, configuration_of_a_qwen3_is_a_llama_with_norms_of_queries_and_keys) {
  const auto model = model_from_hugging_face(fixture("qwen3"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->qk_norm);
  EXPECT_TRUE(model->tie_word_embeddings);
  EXPECT_EQ(model->head_dim, 12);
  EXPECT_EQ(model->rms_norm_eps, 1e-6);
}

TEST(HuggingFace, what_older_files_leave_out_has_the_default_of_its_architecture) {
  const Json old = {{"rope_parameters", nullptr}, {"head_dim", nullptr}, {"num_key_value_heads", nullptr},
                    {"rms_norm_eps", nullptr},    {"dtype", nullptr},    {"torch_dtype", "float16"},
                    {"rope_scaling", nullptr}};
  const auto llama = model_from_hugging_face(with(old));
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->rope_theta, 10000);
  EXPECT_EQ(llama->head_size(), 4);
  EXPECT_EQ(llama->num_key_value_heads, 4);
  EXPECT_EQ(llama->rms_norm_eps, 1e-6);
  const auto qwen3 = model_from_hugging_face(with({{"head_dim", nullptr}}, "qwen3"));
  ASSERT_TRUE(qwen3.ok()) << qwen3.status();
  EXPECT_EQ(qwen3->head_dim, 128);
  EXPECT_EQ(model_from_hugging_face(with({{"rope_parameters", nullptr}, {"rope_theta", 1e6}}))->rope_theta,
            1e6);
}

TEST(HuggingFace, what_our_blocks_do_not_compute_is_refused_by_key_with_its_value) {
  const std::pair<Json, const char*> cases[] = {
      {{{"architectures", {"GemmaForCausalLM"}}, {"model_type", "gemma"}},
       "architectures: expected one of [\"LlamaForCausalLM\"], [\"Qwen3ForCausalLM\"], [\"Qwen3MoeForCausalLM\"], "
       "[\"OlmoeForCausalLM\"], [\"MixtralForCausalLM\"], [\"PenstockForCausalLM\"] and its model_type, found "
       "\"GemmaForCausalLM\" and \"gemma\""},
      {{{"model_type", "qwen3"}}, "found \"LlamaForCausalLM\" and \"qwen3\""},
      {{{"hidden_act", "gelu"}}, "hidden_act: expected \"silu\", found \"gelu\""},
      {{{"attention_bias", true}}, "attention_bias: expected false, found true"},
      {{{"mlp_bias", true}}, "mlp_bias: expected false, found true"},
      {{{"attention_dropout", 0.1}}, "attention_dropout: expected 0.0, found 0.1"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor: expected 1.0, found 0.5"},
      {{{"use_sliding_window", true}}, "use_sliding_window: expected false, found true"},
      {{{"sliding_window", 4096}}, "sliding_window: expected null, found 4096"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}},
       "layer_types: expected \"full_attention\" only, found \"sliding_attention\""},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}, "rope_scaling: expected rotary embeddings"},
      {{{"rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", 5e5}}}},
       "rope_parameters: expected rotary embeddings of type default over the whole head, found "
       "{\"rope_theta\":500000.0,\"rope_type\":\"llama3\"}"},
      {{{"rope_parameters", {{"rope_type", "default"}, {"factor", 8}}}},
       "rope_parameters.factor: expected no such key, found 8"},
      {{{"quantization_config", {{"bits", 4}}}}, "\"quantization_config\": expected no such key"},
      {{{"num_experts", 8}}, "\"num_experts\": expected no such key"},
  };
  for (const auto& [change, expected] : cases) EXPECT_THAT(problem(with(change)), HasSubstr(expected));
  EXPECT_EQ(problem(with({{"sliding_window", 4096}, {"use_sliding_window", false}})), "");
  EXPECT_EQ(problem(with({{"rope_scaling", {{"rope_type", "default"}}}})), "");
  EXPECT_EQ(problem(with({{"some_new_switch", false}})), "");
}

TEST(HuggingFace, numbers_out_of_bounds_are_refused_all_at_once) {
  EXPECT_EQ(problem(with({{"vocab_size", 0}, {"hidden_size", nullptr}, {"rms_norm_eps", "1e-5"}})),
            "vocab_size: expected a whole number from 1 to 4194304, found 0\n"
            "hidden_size: expected a whole number from 1 to 131072, found none\n"
            "rms_norm_eps: expected a number above 0 and at most 1, found \"1e-5\"");
  EXPECT_THAT(problem(with({{"num_hidden_layers", -2}})), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(problem(with({{"num_hidden_layers", 2.0}})), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(problem(with({{"num_hidden_layers", 1e30}})), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(problem(with({{"num_key_value_heads", 3}})),
              HasSubstr("a divisor of num_attention_heads (4), found 3"));
  EXPECT_THAT(problem(with({{"head_dim", 5}})),
              HasSubstr("head_dim: expected an even size of a head, found 5"));
  EXPECT_THAT(problem(with({{"head_dim", nullptr}, {"hidden_size", 18}})),
              HasSubstr("a divisor of hidden_size (18)"));
  EXPECT_THAT(problem(with({{"tie_word_embeddings", 1}})),
              HasSubstr("tie_word_embeddings: expected true or false"));
}

TEST(HuggingFace, text_that_is_no_configuration_is_refused) {
  EXPECT_THAT(problem("[1]"), HasSubstr("expected an object"));
  EXPECT_THAT(problem("{"), HasSubstr("expected JSON"));
  EXPECT_THAT(problem("{}"), HasSubstr("found none and none"));
  EXPECT_THAT(problem(R"({"architectures": ["LlamaForCausalLM"], "architectures": 1})"), HasSubstr("twice"));
  EXPECT_THAT(problem(std::string(kLargestHuggingFaceConfig + 1, ' ')), HasSubstr("at most"));
}

TEST(HuggingFace, configurations_with_experts_are_read) {
  const ModelSpec qwen3 = *model_from_hugging_face(fixture("qwen3_moe"));
  EXPECT_EQ(
      model_keys(qwen3).back(),
      "moe: {num_experts: 5, num_experts_per_tok: 3, moe_intermediate_size: 12, layers: [0, 2], norm_topk_prob: "
      "true, router_aux_loss_coef: 0.001, router_z_loss_coef: 0, capacity_factor: dropless}");
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qk_norm_across_heads);
  EXPECT_EQ(qwen3.intermediate_size, 24);
  const ModelSpec olmoe = *model_from_hugging_face(fixture("olmoe"));
  EXPECT_EQ(
      model_keys(olmoe).back(),
      "moe: {num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 12, layers: [0, 1], norm_topk_prob: "
      "false, router_aux_loss_coef: 0.01, router_z_loss_coef: 0, capacity_factor: dropless}");
  EXPECT_TRUE(olmoe.qk_norm && olmoe.qk_norm_across_heads);
  const ModelSpec mixtral = *model_from_hugging_face(fixture("mixtral"));
  EXPECT_EQ(
      model_keys(mixtral).back(),
      "moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 12, layers: [0, 1], norm_topk_prob: "
      "true, router_aux_loss_coef: 0.001, router_z_loss_coef: 0, capacity_factor: dropless}");
  EXPECT_FALSE(mixtral.qk_norm);
  EXPECT_EQ(mixtral.rope_theta, 1e6);
  const ModelSpec every_second =
      *model_from_hugging_face(with({{"decoder_sparse_step", 2}, {"mlp_only_layers", nullptr}}, "qwen3_moe"));
  EXPECT_EQ(every_second.moe.layers, std::vector<int64_t>{1});
}

TEST(HuggingFace, what_experts_do_not_compute_here_is_refused) {
  EXPECT_THAT(problem(with({{"router_jitter_noise", 0.1}}, "mixtral")),
              HasSubstr("router_jitter_noise: expected 0.0"));
  EXPECT_THAT(problem(with({{"clip_qkv", 8.0}}, "olmoe")), HasSubstr("\"clip_qkv\": expected no such key"));
  EXPECT_THAT(problem(with({{"mlp_only_layers", {0, 1, 2}}}, "qwen3_moe")),
              HasSubstr("a block that has experts"));
  EXPECT_THAT(problem(with({{"mlp_only_layers", {"all"}}}, "qwen3_moe")),
              HasSubstr("a list of numbers of blocks"));
  EXPECT_THAT(problem(with({{"num_experts_per_tok", 7}}, "olmoe")),
              HasSubstr("as there are experts (6), found 7"));
  EXPECT_THAT(problem(with({{"num_experts", nullptr}}, "olmoe")),
              HasSubstr("num_local_experts: expected a whole number"));
}

TEST(HuggingFace, model_that_nobody_else_has_is_written_under_a_name_of_our_own) {
  ModelSpec model = *model_from_hugging_face(fixture("qwen3_moe"));
  model.qk_norm = false;
  const std::string written = model_to_hugging_face(model, "float32");
  EXPECT_EQ(Json::parse(written)["architectures"][0], "PenstockForCausalLM");
  const auto again = model_from_hugging_face(written);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(model_keys(*again), model_keys(model));
}

TEST(HuggingFace, shared_experts_are_of_our_own_name_alone) {
  // Where others have them, they are gated (Qwen2-MoE) or stand beside another router (DeepSeek-V3, GLM-4-MoE).
  ModelSpec model = *model_from_hugging_face(fixture("qwen3_moe"));
  model.moe.num_shared_experts = 2;
  Json written = Json::parse(model_to_hugging_face(model, "float32"));
  EXPECT_EQ(written["architectures"][0], "PenstockForCausalLM");
  const auto again = model_from_hugging_face(written.dump());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->moe.num_shared_experts, 2);
  EXPECT_EQ(model_keys(*again), model_keys(model));
  written["num_shared_experts"] = 65;
  EXPECT_THAT(message(model_from_hugging_face(written.dump()).status()),
              HasSubstr("num_shared_experts: expected a whole number from 1 to 64, found 65"));
  Json other = Json::parse(fixture("qwen3_moe"));
  other["num_shared_experts"] = 2;
  EXPECT_THAT(message(model_from_hugging_face(other.dump()).status()),
              HasSubstr("\"num_shared_experts\": expected no such key"));
}

TEST(HuggingFace, model_that_is_written_reads_back_the_same) {
  for (const char* name : {"llama", "sharded", "deep", "qwen3", "qwen3_moe", "olmoe", "mixtral"}) {
    const auto model = model_from_hugging_face(fixture(name));
    ASSERT_TRUE(model.ok()) << model.status();
    const std::string written = model_to_hugging_face(*model, "bfloat16");
    const auto again = model_from_hugging_face(written);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(model_keys(*again), model_keys(*model));
    EXPECT_EQ(Json::parse(written)["torch_dtype"], "bfloat16");
    EXPECT_EQ(Json::parse(written)["architectures"], Json::parse(fixture(name))["architectures"]);
  }
}

}  // namespace
}  // namespace penstock::plan
