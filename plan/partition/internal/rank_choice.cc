#include "plan/partition/internal/rank_choice.h"

#include <algorithm>

namespace penstock::plan {

std::vector<HeldLayer> layers_held_by(const PartitionRequest& request, const std::vector<int>& boundaries,
                                      int rank) {
  std::vector<HeldLayer> held;
  for (int stage = 0; stage + 1 < static_cast<int>(boundaries.size()); ++stage) {
    if (rank_of_stage(request.placement, request.ranks, stage) != rank) continue;
    const auto at = static_cast<size_t>(stage);
    for (int layer = boundaries[at]; layer < boundaries[at + 1]; ++layer) {
      held.push_back({layer, request.in_flight[at], stage});
    }
  }
  return held;
}

std::optional<std::vector<LayerOption>> choose_options(const PartitionRequest& request,
                                                       const std::vector<HeldLayer>& held,
                                                       Objective objective, int rank, bool& thinned) {
  std::vector<Front> fronts = {{{0, 0}}};  // of the first layers
  for (const HeldLayer& each : held) {
    const LayerCost& layer = request.layers[static_cast<size_t>(each.layer)];
    fronts.push_back(sum_of(fronts.back(), layer_front(layer, each.in_flight), thinned));
  }
  const Front& all = fronts.back();
  const int64_t budget = budget_of_rank(request, rank);
  auto target = all.end() - 1;
  if (objective == Objective::Time) {
    target = std::find_if(all.begin(), all.end(),
                          [&](const TimeAndBytes& point) { return point.bytes <= budget; });
    if (target == all.end()) return std::nullopt;
  }
  std::vector<LayerOption> chosen(held.size());
  TimeAndBytes left = *target;
  for (size_t i = held.size(); i-- > 0;) {
    const LayerCost& layer = request.layers[static_cast<size_t>(held[i].layer)];
    const auto leads_on = [&](const LayerOption& option) {
      const int64_t time = left.time_ns - option.time_ns;
      const int64_t bytes = left.bytes - option.static_bytes - option.activation_bytes * held[i].in_flight;
      return std::any_of(fronts[i].begin(), fronts[i].end(), [&](const TimeAndBytes& point) {
        return point.time_ns == time && point.bytes == bytes;
      });
    };
    chosen[i] = leads_on(layer.keep) ? layer.keep : *layer.recompute;
    left.time_ns -= chosen[i].time_ns;
    left.bytes -= chosen[i].static_bytes + chosen[i].activation_bytes * held[i].in_flight;
  }
  return chosen;
}

}  // namespace penstock::plan
