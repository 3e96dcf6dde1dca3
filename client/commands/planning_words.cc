#include "client/commands/planning_words.h"

#include <fmt/format.h>

#include "plan/render/human.h"

namespace penstock::client {

std::string planned_time(int64_t nanoseconds) {
  const double ms = static_cast<double>(nanoseconds) / 1e6;
  return ms < 1000 ? fmt::format("{:.4g}ms", ms) : fmt::format("{:.4g}s", ms / 1000);
}

std::string missing_memory(std::optional<int64_t> missing_bytes, std::optional<int64_t> smallest_budget) {
  if (smallest_budget)
    return fmt::format("the smallest budget that works is {} bytes ({})", *smallest_budget,
                       plan::human_bytes(*smallest_budget));
  return fmt::format("every rank needs {} bytes ({}) more", *missing_bytes,
                     plan::human_bytes(*missing_bytes));
}

std::string oversized_line(const std::vector<plan::LayerCost>& layers,
                           const std::optional<plan::OversizedLayer>& oversized) {
  if (!oversized) return "";
  return fmt::format(
      "{} alone takes {:.0f} % more than the ideal stage of {}: below that partitioning cannot help; shard it\n",
      layers[static_cast<size_t>(oversized->layer)].name, oversized->above_percent(),
      planned_time(oversized->ideal_ns));
}

}  // namespace penstock::client
