// The search of zb-auto and v-auto: first answers by construction, then better ones by moving steps about.
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
