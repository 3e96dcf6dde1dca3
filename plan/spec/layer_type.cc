#include "plan/spec/layer_type.h"

namespace penstock::plan {

LayerType layer_type_of(const JobSpec& job, const Item& item) {
  if (item.kind == ItemKind::Embedding) return LayerType::Embedding;
  if (item.kind == ItemKind::Head) return LayerType::Head;
  const bool again = job.recomputes(item.layer);
  if (job.model.has_experts(item.layer))
    return again ? LayerType::RecomputedExpertBlock : LayerType::ExpertBlock;
  return again ? LayerType::RecomputedBlock : LayerType::Block;
}

std::string name_of(LayerType type) {
  switch (type) {
    case LayerType::Embedding:
      return "embedding";
    case LayerType::Block:
      return "block";
    case LayerType::ExpertBlock:
      return "block with experts";
    case LayerType::RecomputedBlock:
      return "block, recomputed";
    case LayerType::RecomputedExpertBlock:
      return "block with experts, recomputed";
    case LayerType::Head:
      return "head";
  }
  return "";
}

}  // namespace penstock::plan
