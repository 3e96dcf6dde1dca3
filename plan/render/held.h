// How many forwards a rank holds over time: what its activation memory follows.
#pragma once

#include <vector>

#include "plan/simulation/simulate.h"

namespace penstock::plan {

struct HeldStep {
  Ticks time = 0;
  int held = 0;  // from this time on
};

// From the start of a forward until the end of its B or W; in a forward-only program until its own end.
// Ascending, one step a time; empty for a rank without actions.
std::vector<HeldStep> held_forwards(const RankTimeline& rank, bool forward_only);

int peak_of(const std::vector<HeldStep>& steps);

}  // namespace penstock::plan
