// More stages a rank than the exact searches take: from a given split, takes the best step while there is one. A step
// moves one layer from a stage to any other, and those between by one.
#pragma once

#include <optional>
#include <vector>

#include "plan/partition/internal/cost_model.h"

namespace penstock::plan {

constexpr int64_t kEvaluationsMax = 200'000;  // of splits

// Nothing when no split within the budget was met. `cost` and `bytes` (Objective::Bytes) are models of one request.
std::optional<std::vector<int>> improve_split(CostModel& cost, CostModel& bytes, std::vector<int> start);

}  // namespace penstock::plan
