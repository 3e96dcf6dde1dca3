// Closes gaps: every step goes as early as it can, into any gap on its rank that its input, the order of
// its microbatch and lane, and memory allow; or as late as it can. In turn (forward-backward improvement of
// project scheduling) they rebuild the warm-up and the drain of a program within its memory limits.
#pragma once

#include "plan/generation/internal/timetable.h"

namespace penstock::plan::internal {

// Orders after every step, by ascending start, has moved to its earliest gap.
Orders pulled_left(const Problem& problem, const Timetable& timetable);

// Orders after every step, by descending end, has moved to its latest gap within the longest span of any rank
// from its rank's first start, and then back left.
Orders pushed_right_and_pulled_left(const Problem& problem, const Timetable& timetable);

}  // namespace penstock::plan::internal
