// Which layers of a rank recompute, and what its stages cost then.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/partition/internal/cost_model.h"
#include "plan/partition/partition.h"

namespace penstock::plan {

// A layer of a rank, as it is held on its stage.
struct HeldLayer {
  int layer = 0;
  int in_flight = 0;
  int stage = 0;
};

std::vector<HeldLayer> layers_held_by(const PartitionRequest& request, const std::vector<int>& boundaries,
                                      int rank);

// The fastest choice within the rank's budget, layer by layer, or the one with the fewest bytes; nothing when none fits. `thinned`
// becomes true when a better one may have been lost.
std::optional<std::vector<LayerOption>> choose_options(const PartitionRequest& request,
                                                       const std::vector<HeldLayer>& held,
                                                       Objective objective, int rank, bool& thinned);

}  // namespace penstock::plan
