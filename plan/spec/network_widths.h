// Intermediate sizes of a model's SwiGLU networks beside moe_intermediate_size, that of one routed expert. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Of the one network that the shared experts of a block are; 0: there are none.
inline int64_t shared_intermediate_size(const ModelSpec& model) {
  return model.moe.num_shared_experts * model.moe.moe_intermediate_size;
}

// Of the widest network that every token of some block may go through.
inline int64_t widest_intermediate_size(const ModelSpec& model) {
  return std::max(model.intermediate_size, shared_intermediate_size(model));
}

}  // namespace penstock::plan
