// Zero Bubble's heuristic, as a list schedule: time runs forward, and a rank that is free picks what to run by a policy.
//
// It prefers input gradients and forwards, within how far forwards may run ahead, and runs weight gradients when memory
// asks for them or nothing else can start. What the policy leaves open is when a gap is too short for one.
#pragma once

#include <vector>

#include "plan/generation/internal/problem.h"

namespace penstock::plan::internal {

struct ListPolicy {
  std::vector<int> ahead_max;  // [rank]: most forwards without their input gradient
  bool forward_first = false;  // of a forward and an input gradient that could both start
  int gap_percent = 100;       // a gap takes a weight gradient from this part of its duration on
};

// How many forwards each rank runs before its first input gradient can be there: as many as fit into the wait (one more
// with `overrun`), into memory and into m, and more on each rank than on the next where possible.
std::vector<int> warm_up(const Problem& problem, bool overrun);

// One stage a rank only. Within the memory limits, in microbatch order; takes time proportional to the program.
Orders list_schedule(const Problem& problem, const ListPolicy& policy);

}  // namespace penstock::plan::internal
