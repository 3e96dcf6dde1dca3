#include "plan/spec/model_source.h"

#include <fmt/format.h>

#include "base/text.h"
#include "plan/spec/internal/scalar_text.h"
#include "plan/spec/internal/yaml_tree.h"

namespace penstock::plan {
namespace {

// The path; null where there is none. It points into `root`.
const YamlNode* find_path(const YamlNode& root) {
  const YamlNode::Entry* model = root.find("model");
  const YamlNode::Entry* from = model == nullptr ? nullptr : model->value.find("from");
  return from != nullptr && from->value.is(YamlNode::Kind::Scalar) ? &from->value : nullptr;
}

}  // namespace

StatusOr<std::string> model_source(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* path = find_path(root);
  return path == nullptr ? "" : path->text;
}

StatusOr<std::string> with_model_source(const std::string& yaml, const std::string& directory,
                                        const ModelSpec& model) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* path = find_path(root);
  if (path == nullptr) return invalid_argument("model.from: expected a path, found none");
  const std::optional<size_t> size = size_in_text(yaml, *path);
  if (!size || directory.find_first_of("\r\n\t") != std::string::npos) {
    return invalid_argument("line {}: model.from: expected a path on one line, found {}", path->line,
                            path->shown());
  }
  std::string text = yaml;
  text.replace(path->offset, *size,
               "{directory: " + double_quoted(directory) + ", " + join(model_keys(model)) + "}");
  return text;
}

namespace {

std::string moe_key(const MoeSpec& moe) {
  const std::string shared =
      moe.num_shared_experts == 0 ? "" : fmt::format("num_shared_experts: {}, ", moe.num_shared_experts);
  return fmt::format(
      "moe: {{num_experts: {}, num_experts_per_tok: {}, moe_intermediate_size: {}, {}layers: [{}], norm_topk_prob: {}, "
      "router_aux_loss_coef: {}, router_z_loss_coef: {}, capacity_factor: {}}}",
      moe.num_experts, moe.num_experts_per_tok, moe.moe_intermediate_size, shared,
      fmt::join(moe.layers, ", "), moe.norm_topk_prob, moe.router_aux_loss_coef, moe.router_z_loss_coef,
      moe.capacity_factor == 0 ? "dropless" : fmt::format("{}", moe.capacity_factor));
}

}  // namespace

std::vector<std::string> model_keys(const ModelSpec& model) {
  std::vector<std::string> keys = {fmt::format("vocab_size: {}", model.vocab_size),
                                   fmt::format("hidden_size: {}", model.hidden_size),
                                   fmt::format("num_hidden_layers: {}", model.num_hidden_layers),
                                   fmt::format("num_attention_heads: {}", model.num_attention_heads),
                                   fmt::format("num_key_value_heads: {}", model.num_key_value_heads),
                                   fmt::format("intermediate_size: {}", model.intermediate_size),
                                   fmt::format("max_position_embeddings: {}", model.max_position_embeddings),
                                   fmt::format("rope_theta: {}", model.rope_theta),
                                   fmt::format("rms_norm_eps: {}", model.rms_norm_eps),
                                   fmt::format("initializer_range: {}", model.initializer_range),
                                   fmt::format("tie_word_embeddings: {}", model.tie_word_embeddings),
                                   fmt::format("qk_norm: {}", model.qk_norm)};
  if (model.qk_norm_across_heads) keys.push_back("qk_norm_across_heads: true");
  if (model.head_dim != 0) keys.push_back(fmt::format("head_dim: {}", model.head_dim));
  if (model.moe.num_experts > 0) keys.push_back(moe_key(model.moe));
  return keys;
}

}  // namespace penstock::plan
