// The parameters of a model: names and shapes as Hugging Face Llama, with experts as OLMoE and Qwen3-MoE, with shared
// ones as DeepSeek, in model order. The order is part of the numerics contract (gradient norm, weights digest), the names key the initialisation.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "plan/spec/job_spec.h"

namespace penstock::plan {

struct ParameterSpec {
  std::string name;                 // "model.layers.3.self_attn.q_proj.weight"
  std::string stored_name{};        // in a Hugging Face folder: the same, but for the experts of a Mixtral
  std::vector<int64_t> shape;       // [out, in] for matrices, [n] for norms
  Item item;                        // the item that owns it
  int32_t index = -1;               // place in model order
  bool initialised_to_one = false;  // norms; the others are normal(0, initializer_range)
  bool packed = false;              // products read a packed copy; else it is read as it is
  int64_t expert = -1;              // of its block; -1: dense, on every rank that holds the item

  int64_t elements() const;
  bool is_dense() const { return expert < 0; }
};

// Experts first .. end - 1 of every block; all of them where nothing is said. rank_place.h tells those of a rank.
struct ExpertRange {
  int64_t first = 0;
  int64_t end = std::numeric_limits<int64_t>::max();

  bool holds(int64_t expert) const { return first <= expert && expert < end; }
};

// In the order in which a forward pass meets them: embedding; per block the norm before attention, q, k, v,
// o, with qk_norm the norms of q's and k's heads, the norm before the MLP, gate, up, down or, in a block with experts,
// the router, then gate, up, down of the shared experts' one network and those of each routed expert; final norm, LM head. With tie_word_embeddings there is no LM head:
// the head uses the embedding's matrix, which counts once.
std::vector<ParameterSpec> model_parameters(const ModelSpec& model);
// Those of the given items, with no other experts than these, in model order and with their places in the whole model.
std::vector<ParameterSpec> parameters_of(const ModelSpec& model, const std::vector<Item>& items,
                                         const ExpertRange& experts = {});

// A model whose every block has experts, none shared, whose weights sum to one, without norms of queries and keys.
bool is_mixtral(const ModelSpec& model);

// Whether `items` use the tied matrix as their head does.
bool holds_tied_head(const ModelSpec& model, const std::vector<Item>& items);

// Whether `name` is the pattern, in which * stands for any characters.
bool matches_pattern(std::string_view name, std::string_view pattern);
// Whether weight decay applies to the parameter: none of the patterns of no_decay matches its name.
bool decays(const OptimizerSpec& optimizer, const std::string& name);

}  // namespace penstock::plan
