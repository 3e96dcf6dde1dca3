#include "plan/simulation/internal/check_costs.h"

#include <algorithm>

#include "plan/simulation/internal/links.h"

namespace penstock::plan::internal {
namespace {

// The least and the most of every number that goes into a sum of times.
struct Extremes {
  Ticks shortest = 0;
  Ticks longest = 0;

  void add(Ticks ticks) {
    shortest = std::min(shortest, ticks);
    longest = std::max(longest, ticks);
  }
};

Status check_link(const LinkCosts& link, int64_t largest_message, Extremes& times) {
  if (link.bandwidth.bytes < 0 || link.bandwidth.ticks < 0) {
    return invalid_argument("costs: bandwidth: expected 0 or more, found {} bytes in {} ticks",
                            link.bandwidth.bytes, link.bandwidth.ticks);
  }
  times.add(link.latency);
  times.add(link.ticks_per_message);
  times.add(Links::ticks_for_bytes(link.bandwidth, largest_message));
  return ok_status();
}

Status check_links(const ProgramSize& size, const SimulationCosts& costs, Extremes& times) {
  const auto boundaries = static_cast<size_t>(std::max(size.stages - 1, 0));
  if (!costs.message_bytes.empty() && costs.message_bytes.size() != boundaries) {
    return invalid_argument("costs: message_bytes: expected those of {} boundaries, found {}", boundaries,
                            costs.message_bytes.size());
  }
  int64_t largest = 0;
  for (const int64_t bytes : costs.message_bytes) {
    if (bytes < 0) return invalid_argument("costs: message_bytes: expected 0 or more, found {}", bytes);
    largest = std::max(largest, bytes);
  }
  PENSTOCK_RETURN_IF_ERROR(
      check_link({costs.latency, costs.ticks_per_message, costs.bandwidth}, largest, times));
  for (const LinkOverride& link : costs.links) {
    const auto [low, high] = std::minmax(link.source, link.target);
    if (low.value < 0 || high.value >= size.ranks || low == high) {
      return invalid_argument("costs: links: expected two ranks of 0 to {}, found {} to {}", size.ranks - 1,
                              link.source.value, link.target.value);
    }
    PENSTOCK_RETURN_IF_ERROR(check_link(link.costs, largest, times));
  }
  return ok_status();
}

Status check_waits(const ResidentWaits& waits) {
  const bool is_sound = waits.blocks >= 0 && waits.blocks_per_wait >= 0 &&
                        waits.blocks_per_wait <= waits.blocks && waits.blocks <= 1 << 16;
  if (is_sound) return ok_status();
  return invalid_argument("costs: waits: expected 0 to 65536 blocks and no more for a wait, found {} and {}",
                          waits.blocks, waits.blocks_per_wait);
}

}  // namespace

// Not more than a chain of all actions and an update before it, each with both parts of two backwards and two messages of three
// terms, as slow as waits can make them, on every rank.
Ticks longest_time(const ProgramSize& size, int32_t blocks) {
  constexpr Ticks kLongestSum = INT64_MAX / 16;
  return kLongestSum / (size.actions + 1) / std::max(size.ranks, 1) / std::max(blocks, 1);
}

Status check_counts(const ProgramSize& size, const SimulationCosts& costs) {
  if (static_cast<int>(costs.stages.size()) != size.stages) {
    return invalid_argument("costs: expected those of {} stages, found {}", size.stages, costs.stages.size());
  }
  if (costs.updates.empty()) return ok_status();
  if (static_cast<int>(costs.updates.size()) == size.ranks && size.updates == 1) return ok_status();
  return invalid_argument("costs: updates: expected those of {} ranks before one step, found {} before {}",
                          size.ranks, costs.updates.size(), size.updates);
}

Status check_costs(const ProgramSize& size, const SimulationCosts& costs) {
  PENSTOCK_RETURN_IF_ERROR(check_counts(size, costs));
  Extremes times;
  for (const Ticks update : costs.updates) times.add(update);
  times.add(costs.overlapped_pair);
  for (const StageCosts& stage : costs.stages) {
    for (const Ticks part : {stage.forward, stage.input_gradient, stage.weight_gradient}) times.add(part);
    times.add(stage.backward.value_or(0));
  }
  PENSTOCK_RETURN_IF_ERROR(check_links(size, costs, times));
  PENSTOCK_RETURN_IF_ERROR(check_waits(costs.waits));
  if (times.shortest < 0) return invalid_argument("costs: expected 0 or more, found {}", times.shortest);
  if (times.longest <= longest_time(size, costs.waits.blocks)) return ok_status();
  return invalid_argument("costs: {} ticks for each of {} actions on {} ranks is more than can be counted",
                          times.longest, size.actions, size.ranks);
}

}  // namespace penstock::plan::internal
