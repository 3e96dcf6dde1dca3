// More stages a rank than the exact searches take: from the best of given splits, takes the best step while there is one. A step
// moves one layer from a stage to any other, and those between by one. It ends early after a
// fixed number of ranks that were looked at, or where the model stops it.
#pragma once

#include <optional>
#include <vector>

#include "plan/partition/internal/cost_model.h"

namespace penstock::plan {

// Nothing when no split within the budget was met. `cost` and `bytes` (Objective::Bytes) are models of one request.
std::optional<std::vector<int>> improve_split(CostModel& cost, CostModel& bytes,
                                              const std::vector<std::vector<int>>& starts);

}  // namespace penstock::plan
