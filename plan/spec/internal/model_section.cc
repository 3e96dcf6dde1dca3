#include <fmt/format.h>

#include "plan/spec/internal/sections.h"
#include "plan/spec/limits.h"
#include "plan/spec/network_widths.h"

namespace penstock::plan {
namespace {

void check_heads(const Section& section, const ModelSpec& model, Problems& problems) {
  if (model.qk_norm_across_heads && !model.qk_norm) {
    problems.expected(section.line_of("qk_norm_across_heads"), "model.qk_norm_across_heads",
                      "false where there is no qk_norm: true", "true");
  }
  if (model.num_attention_heads == 0) return;
  const int line = section.line_of("num_attention_heads");
  if (model.head_dim == 0 && model.hidden_size % model.num_attention_heads != 0) {
    problems.expected(line, "model.num_attention_heads",
                      fmt::format("a divisor of hidden_size ({}), or a head_dim", model.hidden_size),
                      fmt::format("{}", model.num_attention_heads));
  } else if (model.head_dim % 2 != 0) {
    problems.expected(section.line_of("head_dim"), "model.head_dim",
                      "an even number, as rotary embeddings need", fmt::format("{}", model.head_dim));
  } else if (model.head_size() % 2 != 0) {
    problems.expected(
        line, "model.num_attention_heads",
        "an even head size (hidden_size / num_attention_heads), as rotary embeddings need",
        fmt::format("{} / {} = {}", model.hidden_size, model.num_attention_heads, model.head_size()));
  }
  if (model.num_attention_heads % model.num_key_value_heads != 0) {
    problems.expected(section.line_of("num_key_value_heads"), "model.num_key_value_heads",
                      fmt::format("a divisor of num_attention_heads ({})", model.num_attention_heads),
                      fmt::format("{}", model.num_key_value_heads));
  }
}

constexpr int64_t kWidestNetwork = 1 << 19;
constexpr int64_t kMostExpertsOfAModel = 24'576;  // 3 parameters each: as many as a job's messages carry

void read_capacity(Section& section, double& capacity_factor, Problems& problems) {
  const YamlNode::Entry* entry = section.entry("capacity_factor");
  if (entry == nullptr) return;
  const std::string field = section.field("capacity_factor");
  Problems other_words;
  if (entry->value.is(YamlNode::Kind::Scalar) && entry->value.text == "dropless") {
    capacity_factor = 0;
  } else if (!read_number(entry->value, field, {.most = 1024, .above_least = true}, capacity_factor,
                          other_words)) {
    problems.expected(entry->line, field, "dropless or a number above 0 and at most 1024",
                      entry->value.shown());
  }
}

void read_moe(Section section, ModelSpec& model, Problems& problems, Need need) {
  if (!section.present()) return;
  MoeSpec& moe = model.moe;
  section.integer("num_experts", moe.num_experts, {1, 1024}, need);
  section.integer("num_experts_per_tok", moe.num_experts_per_tok, {1, 64}, need);
  section.integer("moe_intermediate_size", moe.moe_intermediate_size, {1, kWidestNetwork}, need);
  section.integer("num_shared_experts", moe.num_shared_experts, {0, 64});
  if (moe.layers.empty()) {
    for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer) moe.layers.push_back(layer);
  }
  read_layers(section, "layers", "", model, moe.layers, problems);
  section.flag("norm_topk_prob", moe.norm_topk_prob);
  section.number("router_aux_loss_coef", moe.router_aux_loss_coef, {.least = 0, .most = 1e3});
  section.number("router_z_loss_coef", moe.router_z_loss_coef, {.least = 0, .most = 1e3});
  read_capacity(section, moe.capacity_factor, problems);
  section.finish();
  if (moe.num_experts > 0 && moe.num_experts_per_tok > moe.num_experts) {
    problems.expected(section.line_of("num_experts_per_tok"), section.field("num_experts_per_tok"),
                      fmt::format("at most num_experts ({})", moe.num_experts),
                      fmt::format("{}", moe.num_experts_per_tok));
  }
  if (shared_intermediate_size(model) > kWidestNetwork) {
    problems.expected(section.line_of("num_shared_experts"), section.field("num_shared_experts"),
                      fmt::format("at most {} in num_shared_experts x moe_intermediate_size", kWidestNetwork),
                      fmt::format("{} x {}", moe.num_shared_experts, moe.moe_intermediate_size));
  }
  const int64_t experts = moe.num_experts * static_cast<int64_t>(moe.layers.size());
  if (experts > kMostExpertsOfAModel) {
    problems.expected(section.line_of("num_experts"), section.field("num_experts"),
                      fmt::format("at most {} experts in all layers", kMostExpertsOfAModel),
                      fmt::format("{}", experts));
  }
}

// What config.json knows of a model; `need`: of the keys without a default.
void read_architecture(Section& section, ModelSpec& model, Need need) {
  section.integer("vocab_size", model.vocab_size, {1, 1 << 22}, need);
  section.integer("hidden_size", model.hidden_size, {1, 1 << 17}, need);
  section.integer("num_hidden_layers", model.num_hidden_layers, {1, kMostBlocks}, need);
  section.integer("num_attention_heads", model.num_attention_heads, {1, 4096}, need);
  section.integer("intermediate_size", model.intermediate_size, {1, kWidestNetwork}, need);
  section.integer("max_position_embeddings", model.max_position_embeddings, {1, 1 << 20}, need);
  if (need == Need::Required) model.num_key_value_heads = model.num_attention_heads;
  section.integer("num_key_value_heads", model.num_key_value_heads, {1, 4096});
  section.number("rope_theta", model.rope_theta, {.least = 1, .most = 1e12, .above_least = true});
  section.number("rms_norm_eps", model.rms_norm_eps, {.least = 0, .most = 1, .above_least = true});
  section.number("initializer_range", model.initializer_range,
                 {.least = 0, .most = 1e3, .above_least = true});
  section.integer("head_dim", model.head_dim, {1, 1 << 13});
  section.flag("tie_word_embeddings", model.tie_word_embeddings);
  section.flag("qk_norm", model.qk_norm);
  section.flag("qk_norm_across_heads", model.qk_norm_across_heads);
}

// A path, or the folder and what its config.json says (model_source.h). True when the latter has filled `model`.
bool read_from(Section& section, ModelSpec& model, Problems& problems) {
  const YamlNode::Entry* from = section.entry("from");
  if (from == nullptr) return false;
  if (from->value.is(YamlNode::Kind::Map)) {
    Section source = section.section("from");
    source.text("directory", model.from, Need::Required);
    read_architecture(source, model, Need::Required);
    read_moe(source.section("moe"), model, problems, Need::Required);
    source.finish();
    return true;
  }
  if (from->value.is(YamlNode::Kind::Scalar) && !from->value.text.empty() &&
      from->value.text.size() <= 4096) {
    model.from = from->value.text;
  } else {
    problems.expected(from->line, "model.from", "the path of a folder, of 1 to 4096 bytes",
                      from->value.shown());
  }
  return false;
}

// The job file may repeat what config.json says, and not contradict it.
class Agreement {
 public:
  Agreement(const Section& section, const ModelSpec& source, Problems& problems)
      : section_(section), source_(source), problems_(problems) {}

  template <typename Value>
  void check(const char* key, const Value& given, const Value& said) {
    if (given == said) return;
    problems_.expected(section_.line_of(key), section_.field(key),
                       fmt::format("{}, as {}/config.json says", said, source_.from),
                       fmt::format("{}", given));
  }

 private:
  const Section& section_;
  const ModelSpec& source_;
  Problems& problems_;
};

void check_agreement(const Section& section, const ModelSpec& given, const ModelSpec& source,
                     Problems& problems) {
  Agreement agreement(section, source, problems);
  agreement.check("vocab_size", given.vocab_size, source.vocab_size);
  agreement.check("hidden_size", given.hidden_size, source.hidden_size);
  agreement.check("num_hidden_layers", given.num_hidden_layers, source.num_hidden_layers);
  agreement.check("num_attention_heads", given.num_attention_heads, source.num_attention_heads);
  agreement.check("num_key_value_heads", given.num_key_value_heads, source.num_key_value_heads);
  agreement.check("intermediate_size", given.intermediate_size, source.intermediate_size);
  agreement.check("max_position_embeddings", given.max_position_embeddings, source.max_position_embeddings);
  agreement.check("rope_theta", given.rope_theta, source.rope_theta);
  agreement.check("rms_norm_eps", given.rms_norm_eps, source.rms_norm_eps);
  agreement.check("initializer_range", given.initializer_range, source.initializer_range);
  if (given.head_dim != 0 && source.num_attention_heads > 0)
    agreement.check("head_dim", given.head_dim, source.head_size());
  agreement.check("tie_word_embeddings", given.tie_word_embeddings, source.tie_word_embeddings);
  agreement.check("qk_norm", given.qk_norm, source.qk_norm);
  agreement.check("qk_norm_across_heads", given.qk_norm_across_heads, source.qk_norm_across_heads);
}

// Coefficients and capacity are of the training: a job may say other ones than the folder.
void check_experts_agree(const Section& section, const ModelSpec& given, const ModelSpec& source,
                         Problems& problems) {
  Agreement agreement(section, source, problems);
  agreement.check("num_experts", given.moe.num_experts, source.moe.num_experts);
  agreement.check("num_experts_per_tok", given.moe.num_experts_per_tok, source.moe.num_experts_per_tok);
  agreement.check("moe_intermediate_size", given.moe.moe_intermediate_size, source.moe.moe_intermediate_size);
  agreement.check("num_shared_experts", given.moe.num_shared_experts, source.moe.num_shared_experts);
  agreement.check("layers", fmt::format("[{}]", fmt::join(given.moe.layers, ", ")),
                  fmt::format("[{}]", fmt::join(source.moe.layers, ", ")));
  agreement.check("norm_topk_prob", given.moe.norm_topk_prob, source.moe.norm_topk_prob);
}

}  // namespace

void read_layers(Section& section, const std::string& key, const std::string& else_expected,
                 const ModelSpec& model, std::vector<int64_t>& layers, Problems& problems) {
  const YamlNode::Entry* entry = section.entry(key);
  if (entry == nullptr || model.num_hidden_layers == 0) return;
  const bool list = entry->value.is(YamlNode::Kind::List) && !entry->value.items.empty() &&
                    static_cast<int64_t>(entry->value.items.size()) <= model.num_hidden_layers;
  if (!list) {
    return problems.expected(
        entry->line, section.field(key),
        fmt::format("{}a list of 1 to {} blocks", else_expected, model.num_hidden_layers),
        entry->value.shown());
  }
  layers.clear();
  for (const YamlNode& node : entry->value.items) {
    const IntegerRange range{layers.empty() ? 0 : layers.back() + 1, model.num_hidden_layers - 1};
    int64_t layer = 0;
    if (!read_integer(node, section.field(key), range, layer, problems)) return;
    layers.push_back(layer);
  }
}

void read_model(Section section, ModelSpec& model, Problems& problems) {
  if (read_from(section, model, problems)) {
    ModelSpec given = model;
    read_architecture(section, given, Need::Optional);
    check_agreement(section, given, model, problems);
    Section experts = section.section("moe");
    if (experts.present()) {
      read_moe(experts, given, problems, Need::Optional);
      check_experts_agree(experts, given, model, problems);
      model.moe = given.moe;
    }
  } else {
    read_architecture(section, model, Need::Required);
    read_moe(section.section("moe"), model, problems, Need::Required);
  }
  section.number("hidden_dropout", model.hidden_dropout, {.least = 0, .most = 1, .below_most = true});
  section.finish();
  check_heads(section, model, problems);
}

}  // namespace penstock::plan
