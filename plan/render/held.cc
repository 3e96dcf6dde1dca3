#include "plan/render/held.h"

#include <algorithm>
#include <map>

#include "plan/schedule/dataflow.h"

namespace penstock::plan {

std::vector<HeldStep> held_forwards(const RankTimeline& rank, bool forward_only) {
  std::map<Ticks, int> changes;
  const auto note = [&](const Work& work, const TimedAction& timed) {
    if (work.kind == ActionKind::Forward) ++changes[timed.start];
    if (forward_only || ends_backward(work.kind)) --changes[timed.end];
  };
  for (const TimedAction& timed : rank.actions) {
    note(timed.action.work, timed);
    if (timed.action.overlapped) note(*timed.action.overlapped, timed);
  }
  std::vector<HeldStep> steps;
  int held = 0;
  for (const auto& [time, change] : changes) steps.push_back({time, held += change});
  return steps;
}

int peak_of(const std::vector<HeldStep>& steps) {
  int peak = 0;
  for (const HeldStep& step : steps) peak = std::max(peak, step.held);
  return peak;
}

}  // namespace penstock::plan
