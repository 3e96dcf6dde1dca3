// How the planning commands say times and verdicts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/partition/partition.h"

namespace penstock::client {

// Four digits, since splits differ by less than one per cent: "39.46ms", "1.857s".
std::string planned_time(int64_t nanoseconds);

// Where nothing fits into the budgets: what would.
std::string missing_memory(std::optional<int64_t> missing_bytes, std::optional<int64_t> smallest_budget);

// A line that says beyond what partitioning cannot help, or nothing.
std::string oversized_line(const std::vector<plan::LayerCost>& layers,
                           const std::optional<plan::OversizedLayer>& oversized);

}  // namespace penstock::client
