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

}  // namespace

void read_model(Section section, ModelSpec& model, Problems& problems) {
  section.integer("vocab_size", model.vocab_size, {1, 1 << 22}, Need::Required);
  section.integer("hidden_size", model.hidden_size, {1, 1 << 17}, Need::Required);
  section.integer("num_hidden_layers", model.num_hidden_layers, {1, 4096}, Need::Required);
  section.integer("num_attention_heads", model.num_attention_heads, {1, 4096}, Need::Required);
  section.integer("intermediate_size", model.intermediate_size, {1, 1 << 19}, Need::Required);
  section.integer("max_position_embeddings", model.max_position_embeddings, {1, 1 << 20}, Need::Required);
  model.num_key_value_heads = model.num_attention_heads;
  section.integer("num_key_value_heads", model.num_key_value_heads, {1, 4096});
  section.number("rope_theta", model.rope_theta, {.least = 1, .most = 1e12, .above_least = true});
  section.number("rms_norm_eps", model.rms_norm_eps, {.least = 0, .most = 1, .above_least = true});
  section.number("initializer_range", model.initializer_range,
                 {.least = 0, .most = 1e3, .above_least = true});
  section.later("head_dim");
  section.only_false("tie_word_embeddings");
  section.only_false("qk_norm");
  section.later("hidden_dropout");
  section.later("from");
  section.later("moe");
  section.finish();
  check_heads(section, model, problems);
}

}  // namespace penstock::plan
