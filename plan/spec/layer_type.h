// Layers that cost the same: what a model is made of, as measurements and cost models tell its parts apart.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "plan/spec/job_spec.h"

namespace penstock::plan {

enum class LayerType : uint8_t {
  Embedding,
  Block,
  ExpertBlock,
  RecomputedBlock,  // its backward runs its forward once more
  RecomputedExpertBlock,
  Head,
};
inline constexpr int kLayerTypes = 6;

LayerType layer_type_of(const JobSpec& job, const Item& item);

// "embedding", "block", "block with experts", "block, recomputed", "block with experts, recomputed", "head".
std::string name_of(LayerType type);

}  // namespace penstock::plan
