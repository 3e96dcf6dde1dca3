// The model of a Hugging Face folder: config.json as a ModelSpec, and back. Names of tensors are those of
// plan/spec/parameters.h already.
//
// Architectures: LlamaForCausalLM; Qwen3ForCausalLM, which is the same with qk_norm; with experts Qwen3MoeForCausalLM
// (qk_norm, in any blocks), OlmoeForCausalLM (qk_norm_across_heads, in all blocks) and MixtralForCausalLM (no qk_norm,
// in all blocks, weights that sum to one). A model that is none of them is written as PenstockForCausalLM, which we read
// again and transformers refuses by its name. What our blocks do not compute (biases, other activations, scaled or
// partial rotary embeddings, sliding windows, quantised weights, ...) is refused by key, never ignored; a key that we do not know is refused unless it is null or false.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

constexpr const char* kHuggingFaceConfigFile = "config.json";
constexpr size_t kLargestHuggingFaceConfig = 1u << 20;  // bytes

// `from`, hidden_dropout, router_z_loss_coef and capacity_factor are left as they are by default: the one is a place,
// the others are of training.
// InvalidArgument: a line a problem, each "key: expected ..., found ...", within the bounds of job_spec.h.
StatusOr<ModelSpec> model_from_hugging_face(std::string_view config);

// `dtype`: of the stored weights, float32 or bfloat16.
std::string model_to_hugging_face(const ModelSpec& model, const std::string& dtype);

}  // namespace penstock::plan
