// Moves single steps about, at random from a seed, and keeps what is not worse.
#pragma once

#include <random>

#include "plan/generation/internal/budget.h"
#include "plan/generation/internal/timetable.h"

namespace penstock::plan::internal {

// Improves the timetable until the budget is spent, many moves in a row have not made it better, or its
// longest span is `target`. Moves go where the longest rank waits: weight gradients into its gaps, and what
// it waits for forward; every third goes anywhere, since plateaus are left sideways.
void improve(Timetable& timetable, const Problem& problem, Ticks target, Budget& budget,
             std::mt19937_64& random);

// Makes that many random moves, whatever they cost, to leave a local optimum.
void kick(Timetable& timetable, const Problem& problem, int moves, Budget& budget, std::mt19937_64& random);

}  // namespace penstock::plan::internal
