#include "plan/spec/parameters.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::plan {
namespace {

class ParameterList {
 public:
  void matrix(const std::string& name, int64_t rows, int64_t columns, Item item) {
    add({name, {rows, columns}, item, 0, /*initialised_to_one=*/false});
  }
  void norm(const std::string& name, int64_t size, Item item) {
    add({name, {size}, item, 0, /*initialised_to_one=*/true});
  }
  std::vector<ParameterSpec> release() { return std::move(parameters_); }

 private:
  void add(ParameterSpec parameter) {
    parameter.index = static_cast<int32_t>(parameters_.size());
    parameters_.push_back(std::move(parameter));
  }
  std::vector<ParameterSpec> parameters_;
};

void add_block(const ModelSpec& model, int64_t layer, ParameterList& list) {
  const Item item{ItemKind::Block, LayerIndex(layer)};
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const int64_t query_size = model.num_attention_heads * model.head_size();
  const int64_t key_value_size = model.num_key_value_heads * model.head_size();
  list.norm(prefix + "input_layernorm.weight", model.hidden_size, item);
  list.matrix(prefix + "self_attn.q_proj.weight", query_size, model.hidden_size, item);
  list.matrix(prefix + "self_attn.k_proj.weight", key_value_size, model.hidden_size, item);
  list.matrix(prefix + "self_attn.v_proj.weight", key_value_size, model.hidden_size, item);
  list.matrix(prefix + "self_attn.o_proj.weight", model.hidden_size, query_size, item);
  if (model.qk_norm) {
    list.norm(prefix + "self_attn.q_norm.weight", model.head_size(), item);
    list.norm(prefix + "self_attn.k_norm.weight", model.head_size(), item);
  }
  list.norm(prefix + "post_attention_layernorm.weight", model.hidden_size, item);
  list.matrix(prefix + "mlp.gate_proj.weight", model.intermediate_size, model.hidden_size, item);
  list.matrix(prefix + "mlp.up_proj.weight", model.intermediate_size, model.hidden_size, item);
  list.matrix(prefix + "mlp.down_proj.weight", model.hidden_size, model.intermediate_size, item);
}

}  // namespace

int64_t ParameterSpec::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

std::vector<ParameterSpec> model_parameters(const ModelSpec& model) {
  ParameterList list;
  list.matrix("model.embed_tokens.weight", model.vocab_size, model.hidden_size,
              Item{ItemKind::Embedding, {}});
  for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer) add_block(model, layer, list);
  const Item head{ItemKind::Head, {}};
  list.norm("model.norm.weight", model.hidden_size, head);
  if (!model.tie_word_embeddings) list.matrix("lm_head.weight", model.vocab_size, model.hidden_size, head);
  return list.release();
}

std::vector<ParameterSpec> parameters_of(const ModelSpec& model, const std::vector<Item>& items) {
  std::vector<Item> wanted = items;
  std::sort(wanted.begin(), wanted.end());
  std::vector<ParameterSpec> owned = model_parameters(model);
  std::erase_if(owned, [&](const ParameterSpec& parameter) {
    return !std::binary_search(wanted.begin(), wanted.end(), parameter.item);
  });
  return owned;
}

bool holds_tied_head(const ModelSpec& model, const std::vector<Item>& items) {
  return model.tie_word_embeddings && std::any_of(items.begin(), items.end(), [](const Item& item) {
           return item.kind == ItemKind::Head;
         });
}

// Greedy, with one step back to the last star: linear in the product of the lengths.
bool matches_pattern(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0, star = std::string_view::npos, after_star = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++n, ++p;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool decays(const OptimizerSpec& optimizer, const std::string& name) {
  return std::none_of(optimizer.no_decay.begin(), optimizer.no_decay.end(),
                      [&](const std::string& pattern) { return matches_pattern(name, pattern); });
}

}  // namespace penstock::plan
