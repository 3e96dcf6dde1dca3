#include "plan/spec/parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/spec/network_widths.h"

namespace penstock::plan {
namespace {

// Mixtral's names of the router and of the experts' matrices.
std::string mixtral_name(const std::string& name) {
  const size_t network = name.find(".mlp.");
  if (network == std::string::npos) return name;
  std::string stored = name;
  stored.replace(network, 5, ".block_sparse_moe.");
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {".gate_proj.", ".w1."}, {".down_proj.", ".w2."}, {".up_proj.", ".w3."}};
  for (const auto& [ours, theirs] : kNames) {
    const size_t at = stored.find(ours);
    if (at != std::string::npos) stored.replace(at, ours.size(), theirs);
  }
  return stored;
}

class ParameterList {
 public:
  explicit ParameterList(const ModelSpec& model) : mixtral_(is_mixtral(model)) {}

  void matrix(const std::string& name, int64_t rows, int64_t columns, Item item, int64_t expert = -1) {
    add({.name = name, .shape = {rows, columns}, .item = item, .packed = true, .expert = expert});
  }
  // A matrix that no packed product reads.
  void table(const std::string& name, int64_t rows, int64_t columns, Item item) {
    add({.name = name, .shape = {rows, columns}, .item = item});
  }
  void norm(const std::string& name, int64_t size, Item item) {
    add({.name = name, .shape = {size}, .item = item, .initialised_to_one = true});
  }
  std::vector<ParameterSpec> release() { return std::move(parameters_); }

 private:
  void add(ParameterSpec parameter) {
    parameter.index = static_cast<int32_t>(parameters_.size());
    parameter.stored_name = mixtral_ ? mixtral_name(parameter.name) : parameter.name;
    parameters_.push_back(std::move(parameter));
  }
  std::vector<ParameterSpec> parameters_;
  bool mixtral_;
};

void add_network(const std::string& prefix, int64_t hidden, int64_t intermediate, Item item,
                 ParameterList& list, int64_t expert = -1) {
  list.matrix(prefix + "gate_proj.weight", intermediate, hidden, item, expert);
  list.matrix(prefix + "up_proj.weight", intermediate, hidden, item, expert);
  list.matrix(prefix + "down_proj.weight", hidden, intermediate, item, expert);
}

void add_experts(const ModelSpec& model, const std::string& prefix, Item item, ParameterList& list) {
  list.table(prefix + "gate.weight", model.moe.num_experts, model.hidden_size, item);
  if (model.moe.num_shared_experts > 0) {
    add_network(prefix + "shared_experts.", model.hidden_size, shared_intermediate_size(model), item, list);
  }
  for (int64_t expert = 0; expert < model.moe.num_experts; ++expert) {
    add_network(fmt::format("{}experts.{}.", prefix, expert), model.hidden_size,
                model.moe.moe_intermediate_size, item, list, expert);
  }
}

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
    const bool whole = model.qk_norm_across_heads;
    list.norm(prefix + "self_attn.q_norm.weight", whole ? query_size : model.head_size(), item);
    list.norm(prefix + "self_attn.k_norm.weight", whole ? key_value_size : model.head_size(), item);
  }
  list.norm(prefix + "post_attention_layernorm.weight", model.hidden_size, item);
  if (model.has_experts(LayerIndex(layer))) return add_experts(model, prefix + "mlp.", item, list);
  add_network(prefix + "mlp.", model.hidden_size, model.intermediate_size, item, list);
}

}  // namespace

int64_t ParameterSpec::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

std::vector<ParameterSpec> model_parameters(const ModelSpec& model) {
  ParameterList list(model);
  list.table("model.embed_tokens.weight", model.vocab_size, model.hidden_size, Item{ItemKind::Embedding, {}});
  for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer) add_block(model, layer, list);
  const Item head{ItemKind::Head, {}};
  list.norm("model.norm.weight", model.hidden_size, head);
  if (!model.tie_word_embeddings) list.matrix("lm_head.weight", model.vocab_size, model.hidden_size, head);
  return list.release();
}

std::vector<ParameterSpec> parameters_of(const ModelSpec& model, const std::vector<Item>& items,
                                         const ExpertRange& experts) {
  std::vector<Item> wanted = items;
  std::sort(wanted.begin(), wanted.end());
  std::vector<ParameterSpec> owned = model_parameters(model);
  std::erase_if(owned, [&](const ParameterSpec& parameter) {
    return !std::binary_search(wanted.begin(), wanted.end(), parameter.item) ||
           !(parameter.is_dense() || experts.holds(parameter.expert));
  });
  return owned;
}

bool is_mixtral(const ModelSpec& model) {
  const auto experts_in = static_cast<int64_t>(model.moe.layers.size());
  return model.moe.num_experts > 0 && experts_in == model.num_hidden_layers && model.moe.norm_topk_prob &&
         model.moe.num_shared_experts == 0 && !model.qk_norm;
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
