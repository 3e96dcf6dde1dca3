#include "plan/interop/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "base/json/strict_json.h"
#include "base/text.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

constexpr int kDeepest = 8;
constexpr size_t kMostProblems = 10;

enum class QueryKeyNorm : uint8_t { None, EachHead, AcrossHeads };
enum class ExpertKeys : uint8_t { None, Qwen3Moe, Olmoe, Mixtral };  // how config.json tells of experts

struct Architecture {
  const char* name;
  const char* model_type;
  QueryKeyNorm qk_norm = QueryKeyNorm::None;
  ExpertKeys experts = ExpertKeys::None;
  // Where config.json does not say:
  int64_t key_value_heads = 0;  // 0: as many as there are heads
  int64_t head_dim = 0;         // 0: hidden_size / num_attention_heads
  double rope_theta = 10000;
  double rms_norm_eps = 1e-6;
  double aux_loss_coef = 0.001;
};
constexpr Architecture kLlama{.name = "LlamaForCausalLM", .model_type = "llama"};
constexpr Architecture kQwen3{.name = "Qwen3ForCausalLM",
                              .model_type = "qwen3",
                              .qk_norm = QueryKeyNorm::EachHead,
                              .key_value_heads = 32,
                              .head_dim = 128};
constexpr Architecture kQwen3Moe{.name = "Qwen3MoeForCausalLM",
                                 .model_type = "qwen3_moe",
                                 .qk_norm = QueryKeyNorm::EachHead,
                                 .experts = ExpertKeys::Qwen3Moe,
                                 .key_value_heads = 4};
constexpr Architecture kOlmoe{.name = "OlmoeForCausalLM",
                              .model_type = "olmoe",
                              .qk_norm = QueryKeyNorm::AcrossHeads,
                              .experts = ExpertKeys::Olmoe,
                              .rms_norm_eps = 1e-5,
                              .aux_loss_coef = 0.01};
constexpr Architecture kMixtral{.name = "MixtralForCausalLM",
                                .model_type = "mixtral",
                                .experts = ExpertKeys::Mixtral,
                                .key_value_heads = 8,
                                .rope_theta = 1e6,
                                .rms_norm_eps = 1e-5};
// Models that nobody else has: read again here alone, and refused by name elsewhere.
constexpr Architecture kOwn{
    .name = "PenstockForCausalLM", .model_type = "penstock", .experts = ExpertKeys::Qwen3Moe};
constexpr const Architecture* kArchitectures[] = {&kLlama, &kQwen3, &kQwen3Moe, &kOlmoe, &kMixtral, &kOwn};

const Architecture& architecture_of(const ModelSpec& model) {
  const bool each_head = model.qk_norm && !model.qk_norm_across_heads;
  if (model.moe.num_experts == 0) {
    if (model.qk_norm_across_heads) return kOwn;
    return each_head ? kQwen3 : kLlama;
  }
  if (model.moe.num_shared_experts > 0) return kOwn;
  if (each_head) return kQwen3Moe;
  if (is_mixtral(model)) return kMixtral;
  const bool in_all = static_cast<int64_t>(model.moe.layers.size()) == model.num_hidden_layers;
  return model.qk_norm_across_heads && in_all && model.head_dim == 0 ? kOlmoe : kOwn;
}

// Keys that change nothing of what is computed here: names, tokens, generation, sizes that are not used, and how
// transformers itself goes about it.
const std::set<std::string> kWithoutEffect = {"_name_or_path",
                                              "architectures",
                                              "auto_map",
                                              "bos_token_id",
                                              "dtype",
                                              "output_router_logits",
                                              "eos_token_id",
                                              "max_window_layers",
                                              "model_type",
                                              "pad_token_id",
                                              "pretraining_tp",
                                              "torch_dtype",
                                              "transformers_version",
                                              "unk_token_id",
                                              "use_cache"};

// Takes key after key out of config.json; what is left at the end is unknown.
class ConfigReader {
 public:
  explicit ConfigReader(const Json& config) : config_(config) {}

  const Json* find(const std::string& key) {
    taken_.insert(key);
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  void expected(const std::string& key, const std::string& expectation, const std::string& found) {
    if (problems_.size() < kMostProblems)
      problems_.push_back(fmt::format("{}: expected {}, found {}", key, expectation, found));
  }

  // Without a default the key must be there.
  int64_t integer(const std::string& key, int64_t most, std::optional<int64_t> otherwise = std::nullopt) {
    const Json* value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    const bool fits = value != nullptr && value->is_number_unsigned() && value->get<uint64_t>() >= 1 &&
                      value->get<uint64_t>() <= static_cast<uint64_t>(most);
    if (fits) return value->get<int64_t>();
    expected(key, fmt::format("a whole number from 1 to {}", most), shown(value));
    return 0;
  }

  // Above `above`, at most `most`.
  double checked(const std::string& key, const Json* value, double above, double most) {
    const bool fits = value->is_number() && value->get<double>() > above && value->get<double>() <= most;
    if (fits) return value->get<double>();
    expected(key, fmt::format("a number above {} and at most {}", above, most), shown(value));
    return 0;
  }
  double number(const std::string& key, double above, double most, double otherwise) {
    const Json* value = find(key);
    return value == nullptr ? otherwise : checked(key, value, above, most);
  }

  bool flag(const std::string& key, bool otherwise) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) expected(key, "true or false", shown(value));
    return value->is_boolean() && value->get<bool>();
  }

  // The one value of the key that our blocks compute.
  void only(const std::string& key, const Json& value) {
    const Json* found = find(key);
    if (found != nullptr && *found != value) expected(key, shown_json(value), shown(found));
  }

  Status finish() {
    for (const auto& [key, value] : config_.items()) {
      const bool off = value.is_null() || (value.is_boolean() && !value.get<bool>());
      if (taken_.contains(key) || kWithoutEffect.contains(key) || off) continue;
      expected(shown_json(Json(key)),
               "no such key, which is unknown here and may change what the model computes", shown(&value));
    }
    return problems_.empty() ? ok_status() : invalid_argument("{}", join(problems_, "\n"));
  }

 private:
  static std::string shown(const Json* value) { return value == nullptr ? "none" : shown_json(*value); }

  const Json& config_;
  std::set<std::string> taken_;
  std::vector<std::string> problems_;
};

StatusOr<Architecture> architecture_of(const Json& config) {
  std::string found = "none";
  const auto list = config.find("architectures");
  if (list != config.end() && list->is_array() && list->size() == 1) found = shown_json((*list)[0]);
  const auto type = config.find("model_type");
  std::vector<std::string> known;
  for (const Architecture* each : kArchitectures) {
    const bool named = found == shown_json(Json(each->name));
    const bool typed = type != config.end() && *type == each->model_type;
    if (named && (typed || type == config.end())) return *each;
    if (typed && list == config.end()) return *each;
    known.push_back(fmt::format("[\"{}\"]", each->name));
  }
  if (list != config.end() && found == "none") found = shown_json(*list);
  return invalid_argument("architectures: expected one of {} and its model_type, found {} and {}",
                          join(known), found, type == config.end() ? "none" : shown_json(*type));
}

// {"rope_type": "default"}, by its new name or its old one ("type").
bool is_plain_rope(const Json& rope) {
  for (const char* key : {"rope_type", "type"}) {
    if (rope.contains(key) && rope[key] != "default") return false;
  }
  return !rope.contains("partial_rotary_factor") || rope["partial_rotary_factor"] == 1.0;
}

// config.json says it beside the other keys, or since transformers 5 in rope_parameters.
double read_rope(ConfigReader& reader, double otherwise) {
  double theta = reader.number("rope_theta", 1, 1e12, otherwise);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = reader.find(key);
    if (rope == nullptr) continue;
    if (!rope->is_object() || !is_plain_rope(*rope)) {
      reader.expected(key, "rotary embeddings of type default over the whole head",
                      rope->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 100));
      continue;
    }
    for (const auto& [name, value] : rope->items()) {
      const std::string field = fmt::format("{}.{}", key, name);
      if (name == "rope_theta") {
        theta = reader.checked(field, &value, 1, 1e12);
      } else if (name != "rope_type" && name != "type" && name != "partial_rotary_factor" &&
                 !value.is_null()) {
        reader.expected(field, "no such key", shown_json(value));
      }
    }
  }
  return theta;
}

void refuse_other_computations(ConfigReader& reader) {
  reader.only("hidden_act", "silu");
  reader.only("attention_bias", false);
  reader.only("mlp_bias", false);
  reader.only("attention_dropout", 0.0);
  reader.only("partial_rotary_factor", 1.0);
  const Json* windowed = reader.find("use_sliding_window");
  if (windowed != nullptr && *windowed != false)
    reader.expected("use_sliding_window", "false", shown_json(*windowed));
  // A size alone turns it on in some models; where use_sliding_window is false it is only a size.
  const Json* window = reader.find("sliding_window");
  if (window != nullptr && windowed == nullptr)
    reader.expected("sliding_window", "null", shown_json(*window));
  const Json* layers = reader.find("layer_types");
  if (layers == nullptr) return;
  for (const Json& type : *layers) {
    if (type == "full_attention") continue;
    return reader.expected("layer_types", "\"full_attention\" only", shown_json(type));
  }
}

void check_heads(ConfigReader& reader, const ModelSpec& model) {
  if (model.hidden_size == 0 || model.num_attention_heads == 0 || model.num_key_value_heads == 0) return;
  if (model.num_attention_heads % model.num_key_value_heads != 0) {
    reader.expected("num_key_value_heads",
                    fmt::format("a divisor of num_attention_heads ({})", model.num_attention_heads),
                    fmt::format("{}", model.num_key_value_heads));
  }
  if (model.head_dim == 0 && model.hidden_size % model.num_attention_heads != 0) {
    reader.expected("num_attention_heads", fmt::format("a divisor of hidden_size ({})", model.hidden_size),
                    fmt::format("{}", model.num_attention_heads));
  } else if (model.head_size() % 2 != 0) {
    reader.expected("head_dim", "an even size of a head", fmt::format("{}", model.head_size()));
  }
}

// Blocks with experts: every decoder_sparse_step-th, without those that mlp_only_layers names.
void read_expert_layers(ConfigReader& reader, int64_t blocks, std::vector<int64_t>& layers) {
  const int64_t step = reader.integer("decoder_sparse_step", 4096, 1);
  std::set<int64_t> without;
  if (const Json* list = reader.find("mlp_only_layers"); list != nullptr) {
    for (const Json& layer : list->is_array() ? *list : Json::array({*list})) {
      if (!layer.is_number_unsigned())
        return reader.expected("mlp_only_layers", "a list of numbers of blocks", shown_json(*list));
      without.insert(static_cast<int64_t>(std::min<uint64_t>(layer.get<uint64_t>(), 1 << 20)));
    }
  }
  for (int64_t layer = 0; step > 0 && layer < blocks; ++layer) {
    if ((layer + 1) % step == 0 && !without.contains(layer)) layers.push_back(layer);
  }
}

void read_experts(ConfigReader& reader, const Architecture& architecture, ModelSpec& model) {
  MoeSpec& moe = model.moe;
  const bool mixtral = architecture.experts == ExpertKeys::Mixtral;
  const bool dense_too = architecture.experts == ExpertKeys::Qwen3Moe;
  // Either name, whatever the architecture.
  const bool local = mixtral || reader.find("num_experts") == nullptr;
  moe.num_experts = reader.integer(local ? "num_local_experts" : "num_experts", 1024);
  moe.num_experts_per_tok = reader.integer("num_experts_per_tok", 64);
  moe.moe_intermediate_size =
      dense_too ? reader.integer("moe_intermediate_size", 1 << 19) : model.intermediate_size;
  moe.norm_topk_prob = mixtral || reader.flag("norm_topk_prob", false);
  const Json* weight = reader.find("router_aux_loss_coef");
  moe.router_aux_loss_coef = weight == nullptr ? architecture.aux_loss_coef
                                               : reader.checked("router_aux_loss_coef", weight, -1e-300, 1e3);
  if (mixtral) reader.only("router_jitter_noise", 0.0);
  if (dense_too) {
    read_expert_layers(reader, model.num_hidden_layers, moe.layers);
  } else {
    for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer) moe.layers.push_back(layer);
  }
  if (architecture.name == kOwn.name && reader.find("num_shared_experts") != nullptr)
    moe.num_shared_experts = reader.integer("num_shared_experts", 64);
  if (moe.layers.empty() && model.num_hidden_layers > 0)
    reader.expected("mlp_only_layers", "a block that has experts", "none");
  if (moe.num_experts_per_tok > moe.num_experts) {
    reader.expected("num_experts_per_tok",
                    fmt::format("at most as many as there are experts ({})", moe.num_experts),
                    fmt::format("{}", moe.num_experts_per_tok));
  }
}

void write_experts(const ModelSpec& model, ExpertKeys keys, nlohmann::ordered_json& json) {
  const MoeSpec& moe = model.moe;
  json[keys == ExpertKeys::Mixtral ? "num_local_experts" : "num_experts"] = moe.num_experts;
  json["num_experts_per_tok"] = moe.num_experts_per_tok;
  json["router_aux_loss_coef"] = moe.router_aux_loss_coef;
  if (keys != ExpertKeys::Mixtral) json["norm_topk_prob"] = moe.norm_topk_prob;
  if (keys != ExpertKeys::Qwen3Moe) {
    json["intermediate_size"] = moe.moe_intermediate_size;
    return;
  }
  json["moe_intermediate_size"] = moe.moe_intermediate_size;
  if (moe.num_shared_experts > 0) json["num_shared_experts"] = moe.num_shared_experts;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = nlohmann::ordered_json::array();
  for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    if (!model.has_experts(LayerIndex(layer))) json["mlp_only_layers"].push_back(layer);
  }
}

}  // namespace

StatusOr<ModelSpec> model_from_hugging_face(std::string_view config) {
  if (config.size() > kLargestHuggingFaceConfig)
    return invalid_argument("expected at most {} bytes, found {}", kLargestHuggingFaceConfig, config.size());
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, parse_strict_json(config, kDeepest));
  if (!json.is_object()) return invalid_argument("expected an object, found {}", shown_json(json));
  PENSTOCK_ASSIGN_OR_RETURN(const Architecture architecture, architecture_of(json));

  ConfigReader reader(json);
  ModelSpec model;
  model.vocab_size = reader.integer("vocab_size", 1 << 22);
  model.hidden_size = reader.integer("hidden_size", 1 << 17);
  model.num_hidden_layers = reader.integer("num_hidden_layers", 4096);
  model.num_attention_heads = reader.integer("num_attention_heads", 4096);
  const int64_t heads = model.num_attention_heads;
  model.num_key_value_heads = reader.integer(
      "num_key_value_heads", 4096, architecture.key_value_heads == 0 ? heads : architecture.key_value_heads);
  model.intermediate_size = reader.integer("intermediate_size", 1 << 19);
  model.max_position_embeddings = reader.integer("max_position_embeddings", 1 << 20);
  model.head_dim = reader.integer("head_dim", 1 << 13, architecture.head_dim);
  if (model.head_dim * heads == model.hidden_size) model.head_dim = 0;  // as it is by itself
  model.rope_theta = read_rope(reader, architecture.rope_theta);
  model.rms_norm_eps = reader.number("rms_norm_eps", 0, 1, architecture.rms_norm_eps);
  model.initializer_range = reader.number("initializer_range", 0, 1e3, 0.02);
  model.tie_word_embeddings = reader.flag("tie_word_embeddings", false);
  model.qk_norm = architecture.qk_norm != QueryKeyNorm::None;
  model.qk_norm_across_heads = architecture.qk_norm == QueryKeyNorm::AcrossHeads;
  const bool own = architecture.name == kOwn.name;
  if (own) model.qk_norm = reader.flag("qk_norm", false);
  if (own) model.qk_norm_across_heads = reader.flag("qk_norm_across_heads", false);
  const bool has_experts = architecture.experts != ExpertKeys::None && (!own || json.contains("num_experts"));
  if (has_experts) read_experts(reader, architecture, model);
  refuse_other_computations(reader);
  check_heads(reader, model);
  PENSTOCK_RETURN_IF_ERROR(reader.finish());
  return model;
}

std::string model_to_hugging_face(const ModelSpec& model, const std::string& dtype) {
  const Architecture& architecture = architecture_of(model);
  nlohmann::ordered_json json;
  json["architectures"] = {architecture.name};
  json["model_type"] = architecture.model_type;
  json["vocab_size"] = model.vocab_size;
  json["hidden_size"] = model.hidden_size;
  json["num_hidden_layers"] = model.num_hidden_layers;
  json["num_attention_heads"] = model.num_attention_heads;
  json["num_key_value_heads"] = model.num_key_value_heads;
  json["head_dim"] = model.head_size();
  json["intermediate_size"] = model.intermediate_size;
  json["max_position_embeddings"] = model.max_position_embeddings;
  json["rope_theta"] = model.rope_theta;
  json["rms_norm_eps"] = model.rms_norm_eps;
  json["initializer_range"] = model.initializer_range;
  json["tie_word_embeddings"] = model.tie_word_embeddings;
  json["hidden_act"] = "silu";
  json["attention_bias"] = false;
  if (!model.qk_norm) json["mlp_bias"] = false;
  if (model.qk_norm) json["use_sliding_window"] = false;
  if (model.moe.num_experts > 0) write_experts(model, architecture.experts, json);
  if (&architecture == &kOwn) {
    json["qk_norm"] = model.qk_norm;
    json["qk_norm_across_heads"] = model.qk_norm_across_heads;
  }
  // Penstock knows no special tokens; transformers would take 1 and 2 for them.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace penstock::plan
