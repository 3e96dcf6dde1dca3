#include "plan/spec/model_source.h"

#include <gmock/gmock.h>

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

ModelSpec small_model() {
  ModelSpec model;
  model.vocab_size = 300;
  model.hidden_size = 64;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.intermediate_size = 96;
  model.max_position_embeddings = 128;
  model.rope_theta = 500000;
  model.rms_norm_eps = 1e-6;
  model.tie_word_embeddings = true;
  return model;
}

std::string job(const std::string& model) {
  return "name: tuned\n" + model +
         "data: {source: /a.txt, sequence_length: 16}\n"
         "train: {steps: 1, global_batch_size: 1, microbatch_size: 1, dtype: float32}\n";
}

std::string resolved(const std::string& yaml, const ModelSpec& model = small_model()) {
  const StatusOr<std::string> text = with_model_source(yaml, "/models/tiny \"one\"", model);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

std::string refusal(const std::string& yaml) {
  const StatusOr<JobSpec> spec = parse_job_spec(yaml);
  return spec.ok() ? "" : message(spec.status());
}

TEST(ModelSource, folder_is_found_as_it_is_written) {
  EXPECT_EQ(*model_source(job("model: {from: ../tiny}\n")), "../tiny");
  EXPECT_EQ(*model_source(job("model:\n  from: 'a b'  # here\n")), "a b");
  EXPECT_EQ(*model_source(job("model: {vocab_size: 3}\n")), "");
  EXPECT_EQ(*model_source("name: a\n"), "");
  EXPECT_FALSE(model_source("a: [").ok());
}

TEST(ModelSource, model_of_the_folder_becomes_that_of_the_job) {
  for (const char* model : {"model: {from: ../tiny}\n", "model:\n  from: '../tiny'  # a comment\n",
                            "model: {hidden_dropout: 0.1, from: ../tiny, hidden_size: 64}\n"}) {
    const std::string text = resolved(job(model));
    const StatusOr<JobSpec> spec = parse_job_spec(text);
    ASSERT_TRUE(spec.ok()) << spec.status() << text;
    EXPECT_EQ(spec->model.from, "/models/tiny \"one\"");
    EXPECT_EQ(model_keys(spec->model), model_keys(small_model()));
    EXPECT_EQ(*model_source(text), "");  // nothing is left to read
  }
  EXPECT_EQ(parse_job_spec(resolved(job("model: {from: x, hidden_dropout: 0.1}\n")))->model.hidden_dropout,
            0.1);
}

TEST(ModelSource, every_other_key_keeps_its_line) {
  const std::string yaml = job("model:\n  from: ../tiny\n  hidden_size: 64\n");
  EXPECT_EQ(parse_job_spec(resolved(yaml))->lines.at("train"), 6);
  EXPECT_EQ(parse_job_spec(resolved(yaml))->lines.at("model.hidden_size"), 4);
}

TEST(ModelSource, every_number_survives_the_text) {
  ModelSpec model = small_model();
  model.rope_theta = 1234567.0 / 7;
  model.rms_norm_eps = 1.0 / 3e5;
  model.initializer_range = 0.1;
  model.head_dim = 18;
  model.qk_norm = true;
  const StatusOr<JobSpec> spec = parse_job_spec(resolved(job("model: {from: x}\n"), model));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.rope_theta, model.rope_theta);
  EXPECT_EQ(spec->model.rms_norm_eps, model.rms_norm_eps);
  EXPECT_EQ(spec->model.initializer_range, model.initializer_range);
  EXPECT_EQ(spec->model.head_dim, 18);
  EXPECT_TRUE(spec->model.qk_norm);
}

ModelSpec small_experts() {
  ModelSpec model = small_model();
  model.qk_norm = model.qk_norm_across_heads = true;
  model.moe.num_experts = 6;
  model.moe.num_experts_per_tok = 2;
  model.moe.moe_intermediate_size = 40;
  model.moe.num_shared_experts = 2;
  model.moe.layers = {1};
  model.moe.norm_topk_prob = true;
  model.moe.router_aux_loss_coef = 1.0 / 3e5;
  return model;
}

TEST(ModelSource, experts_of_the_folder_become_those_of_the_job) {
  const StatusOr<JobSpec> spec = parse_job_spec(resolved(job("model: {from: x}\n"), small_experts()));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(model_keys(spec->model), model_keys(small_experts()));
  EXPECT_EQ(spec->model.moe.num_shared_experts, 2);
  EXPECT_EQ(spec->model.moe.router_aux_loss_coef, 1.0 / 3e5);
}

TEST(ModelSource, job_may_say_how_its_experts_train_and_not_what_they_are) {
  const auto with_moe = [](const std::string& moe) {
    return resolved(job("model: {from: x, moe: {" + moe + "}}\n"), small_experts());
  };
  const StatusOr<JobSpec> spec = parse_job_spec(with_moe(
      "router_aux_loss_coef: 0.5, router_z_loss_coef: 0.1, capacity_factor: 2, num_experts: 6, layers: [1]"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.moe.router_aux_loss_coef, 0.5);
  EXPECT_EQ(spec->model.moe.router_z_loss_coef, 0.1);
  EXPECT_EQ(spec->model.moe.capacity_factor, 2);
  EXPECT_EQ(spec->model.moe.moe_intermediate_size, 40);
  EXPECT_THAT(refusal(with_moe("num_experts: 8")), HasSubstr("model.moe.num_experts: expected 6, as"));
  EXPECT_THAT(refusal(with_moe("num_shared_experts: 0")),
              HasSubstr("model.moe.num_shared_experts: expected 2, as"));
  EXPECT_THAT(refusal(with_moe("layers: [0, 1]")), HasSubstr("model.moe.layers: expected [1], as"));
  EXPECT_THAT(refusal(with_moe("norm_topk_prob: false")),
              HasSubstr("model.moe.norm_topk_prob: expected true"));
}

TEST(ModelSource, key_that_contradicts_the_folder_is_refused_with_both_values) {
  const std::string said = ", as /models/tiny \"one\"/config.json says, found ";
  EXPECT_EQ(refusal(resolved(job("model:\n  from: x\n  vocab_size: 256\n  rope_theta: 10000\n"))),
            "line 4: model.vocab_size: expected 300" + said +
                "256\nline 5: model.rope_theta: expected 500000" + said + "10000");
  EXPECT_THAT(refusal(resolved(job("model: {from: x, tie_word_embeddings: false}\n"))),
              HasSubstr("model.tie_word_embeddings: expected true"));
  EXPECT_THAT(refusal(resolved(job("model: {from: x, head_dim: 32}\n"))),
              HasSubstr("model.head_dim: expected 16"));
  EXPECT_EQ(refusal(resolved(job("model: {from: x, head_dim: 16, qk_norm: false}\n"))), "");
}

TEST(ModelSource, path_alone_wants_every_key_of_the_model) {
  EXPECT_THAT(refusal(job("model: {from: /tiny}\n")), HasSubstr("model.vocab_size: expected a value"));
  const auto spec = parse_job_spec(job(
      "model: {from: /tiny, vocab_size: 300, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, "
      "intermediate_size: 96, max_position_embeddings: 128}\n"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model.from, "/tiny");
  EXPECT_THAT(refusal(job("model: {from: [a]}\n")), HasSubstr("model.from: expected the path of a folder"));
  EXPECT_THAT(refusal(job("model: {from: {directory: /tiny, hidden: 3}}\n")), HasSubstr("model.from.hidden"));
}

TEST(ModelSource, folder_that_no_line_holds_is_refused) {
  EXPECT_FALSE(with_model_source(job("model: {from: x}\n"), "/a\nb", small_model()).ok());
  EXPECT_FALSE(with_model_source(job("model: {}\n"), "/a", small_model()).ok());
  EXPECT_FALSE(with_model_source(job("model:\n  from: >\n    x\n    y\n"), "/a", small_model()).ok());
}

}  // namespace
}  // namespace penstock::plan
