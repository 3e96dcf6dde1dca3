// The search of zb-auto and v-auto. First answers are made: closed forms that fit, list schedules, building
// blocks; from each, gaps are closed. Then, until the bound is met or the budget spent, half of the
// candidates are new lists of random policies, and half are one of the best so far, shaken and improved
// step by step.
#pragma once

#include "plan/generation/internal/timetable.h"

namespace penstock::plan::internal {

struct Found {
  Orders orders;
  Score score;
  int64_t evaluations = 0;
};

// The best program of the problem that the limits let it find; at least a valid one within its memory limits.
Found search(const Problem& problem, const SearchLimits& limits);

}  // namespace penstock::plan::internal
