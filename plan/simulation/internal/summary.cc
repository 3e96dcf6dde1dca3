#include "plan/simulation/internal/summary.h"

#include <algorithm>

namespace penstock::plan::internal {
namespace {

struct Extent {
  Ticks origin = 0;
  Ticks end = 0;
};

// Start of the first action and end of the last; updates begin at 0.
Extent extent_of(const Simulation& simulation) {
  Extent extent{INT64_MAX, 0};
  for (const RankTimeline& rank : simulation.ranks) {
    if (rank.update > 0) {
      extent.origin = 0;
      extent.end = std::max(extent.end, rank.update);
    }
    if (rank.actions.empty()) continue;
    extent.origin = std::min(extent.origin, rank.actions.front().start);
    extent.end = std::max(extent.end, rank.actions.back().end);
  }
  extent.origin = std::min(extent.origin, extent.end);
  return extent;
}

// Of the inputs of an action, the one that arrived last; null when it has none.
const TimedDelivery* last_input_of(const Deliveries& deliveries, const Action& action) {
  const TimedDelivery* first = deliveries.input_of(action.work);
  const TimedDelivery* second = action.overlapped ? deliveries.input_of(*action.overlapped) : nullptr;
  if (first == nullptr || second == nullptr) return first == nullptr ? second : first;
  return second->arrived < first->arrived ? first : second;
}

// Of the gap before an action: the part in which its message was on its way, or a slot of a link was missing.
Ticks in_transfer(const TimedDelivery* input, Ticks free_since, Ticks start, Timeline kind) {
  const Ticks gap = start - free_since;
  const Ticks until_produced = input == nullptr ? 0 : std::clamp<Ticks>(input->produced - free_since, 0, gap);
  if (kind == Timeline::Earliest) return gap - until_produced;
  // The aligned table leaves gaps on purpose.
  return input == nullptr ? 0 : std::max<Ticks>(input->arrived - std::max(input->produced, free_since), 0);
}

void add_idle_times(const Deliveries& deliveries, const Extent& extent, Timeline kind,
                    RankTimeline& timeline) {
  if (timeline.actions.empty()) {
    timeline.idle_warm_up = extent.end - extent.origin - timeline.update;
    return;
  }
  timeline.idle_warm_up = timeline.actions.front().start - extent.origin - timeline.update;
  timeline.idle_cool_down = extent.end - timeline.actions.back().end;
  Ticks free_since = timeline.actions.front().start;
  for (const TimedAction& timed : timeline.actions) {
    if (timed.start > free_since) {
      const Ticks waited =
          in_transfer(last_input_of(deliveries, timed.action), free_since, timed.start, kind);
      timeline.idle_transfer += waited;
      timeline.idle_dependency += timed.start - free_since - waited;
    }
    free_since = timed.end;
  }
}

// `previous_start`: of the action before the reader, the latest one that starts before it; -1 without one.
void classify(const Deliveries& deliveries, const Work& reader, Ticks previous_start,
              Simulation& simulation) {
  const TimedDelivery* input = deliveries.input_of(reader);
  if (input == nullptr) return;
  if (!input->is_remote) {
    ++simulation.handoffs.local;
    return;
  }
  ++(reader.kind == ActionKind::Forward ? simulation.transfers_forward : simulation.transfers_backward);
  ++(previous_start >= input->produced ? simulation.handoffs.hidden : simulation.handoffs.exposed);
}

double ratio(Ticks part, double whole) {
  return whole > 0 ? static_cast<double>(part) / whole : 0;
}

}  // namespace

void summarise(const Deliveries& deliveries, Simulation& simulation) {
  const Extent extent = extent_of(simulation);
  simulation.makespan = extent.end - extent.origin;
  Ticks busiest = 0;
  Ticks busy = 0;
  for (RankTimeline& rank : simulation.ranks) {
    Ticks previous_start = -1;
    rank.busy += rank.update;
    for (const TimedAction& timed : rank.actions) {
      rank.busy += timed.end - timed.start;
      classify(deliveries, timed.action.work, previous_start, simulation);
      if (timed.action.overlapped) classify(deliveries, *timed.action.overlapped, previous_start, simulation);
      previous_start = timed.start;
    }
    busiest = std::max(busiest, rank.busy);
    busy += rank.busy;
    simulation.idle_total += simulation.makespan - rank.busy;
    add_idle_times(deliveries, extent, simulation.timeline, rank);
    if (rank.actions.empty()) continue;
    simulation.max_stage_span =
        std::max(simulation.max_stage_span, rank.actions.back().end - rank.actions.front().start);
  }
  const auto ranks = static_cast<double>(simulation.ranks.size());
  simulation.bubble_fraction = ratio(simulation.idle_total, static_cast<double>(simulation.makespan) * ranks);
  simulation.bubble_to_busy = ratio(simulation.idle_total, static_cast<double>(busy));
  simulation.stage_bubble_rate =
      ratio(simulation.max_stage_span - busiest, static_cast<double>(simulation.max_stage_span));
}

}  // namespace penstock::plan::internal
