#include <fmt/format.h>

#include "plan/spec/internal/sections.h"

namespace penstock::plan {
namespace {

void check_heads(const Section& section, const ModelSpec& model, Problems& problems) {
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

// What config.json knows of a model; `need`: of the keys without a default.
void read_architecture(Section& section, ModelSpec& model, Need need) {
  section.integer("vocab_size", model.vocab_size, {1, 1 << 22}, need);
  section.integer("hidden_size", model.hidden_size, {1, 1 << 17}, need);
  section.integer("num_hidden_layers", model.num_hidden_layers, {1, 4096}, need);
  section.integer("num_attention_heads", model.num_attention_heads, {1, 4096}, need);
  section.integer("intermediate_size", model.intermediate_size, {1, 1 << 19}, need);
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
}

// A path, or the folder and what its config.json says (model_source.h). True when the latter has filled `model`.
bool read_from(Section& section, ModelSpec& model, Problems& problems) {
  const YamlNode::Entry* from = section.entry("from");
  if (from == nullptr) return false;
  if (from->value.is(YamlNode::Kind::Map)) {
    Section source = section.section("from");
    source.text("directory", model.from, Need::Required);
    read_architecture(source, model, Need::Required);
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
}

}  // namespace

void read_model(Section section, ModelSpec& model, Problems& problems) {
  if (read_from(section, model, problems)) {
    ModelSpec given = model;
    read_architecture(section, given, Need::Optional);
    check_agreement(section, given, model, problems);
  } else {
    read_architecture(section, model, Need::Required);
  }
  section.number("hidden_dropout", model.hidden_dropout, {.least = 0, .most = 1, .below_most = true});
  section.later("moe");
  section.finish();
  check_heads(section, model, problems);
}

}  // namespace penstock::plan
