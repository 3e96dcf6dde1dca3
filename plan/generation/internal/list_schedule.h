// Zero Bubble's heuristic as a list schedule, for one stage a rank or two: time runs forward, and a rank
// that is free picks what to run by a policy.
//
// It runs what has its input, by priority, within memory and within how far forwards may run ahead; weight
// gradients when memory asks for them or nothing else can start. What the policy leaves open is when a gap
// is too short for one.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "plan/generation/internal/timetable.h"

namespace penstock::plan::internal {

struct ListPolicy {
  // Forward and input gradient lanes, those to prefer first; of one stage a rank, the first two count.
  std::array<int, 2 * kStagesPerRankMax> priority = {kInputGradient, kForward, kKinds + kInputGradient,
                                                     kKinds + kForward};
  std::vector<int> ahead_max;  // [rank]: most forwards of its first stage without their input gradient
  // Whether a rank that has forwards left runs weight gradients as soon as it can, so that its memory is
  // full of microbatches whose input gradients fill the drain.
  bool weight_gradients_first = false;
  int gap_percent = 100;  // a gap takes a weight gradient from this part of its duration on
};

// One stage a rank: how many forwards each rank runs before its first input gradient can be there: as many
// as fit into the wait (one more with `overrun`), into memory and into m, and more on each rank than on the
// next where possible.
std::vector<int> warm_up(const Problem& problem, bool overrun);

// Within the memory limits, in microbatch order; takes time proportional to the program. A forward of a
// first stage leaves room for one of the second, so that what has begun can end. Nothing where memory stops
// it all the same, which takes an input gradient that needs memory.
std::optional<Orders> list_schedule(const Problem& problem, const ListPolicy& policy);

// The same, from `time` on: what starts before stands as it is in the timetable. Rebuilds a drain.
std::optional<Orders> list_schedule_from(const Timetable& timetable, Ticks time, const Problem& problem,
                                         const ListPolicy& policy);

}  // namespace penstock::plan::internal
