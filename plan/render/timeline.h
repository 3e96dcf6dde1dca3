// Draws a simulated schedule in text: a row a rank, a cell an action, time from left to right.
#pragma once

#include <string>

#include "plan/simulation/simulate.h"

namespace penstock::plan {

struct TimelineStyle {
  int width = 80;      // columns of the terminal
  int ranks_max = 64;  // rows drawn; the rest is counted in a note
};

// With room for it, every cell carries its action: "|0F0|0F1|   |0B0   |". Otherwise one letter a unit of
// time (F, B, I, W, O for a pair, '.' idle; in lower case for stages of a rank other than its first), cut at
// the width. Notes under the drawing say how to read it and what was left out.
std::string timeline_text(const Simulation& simulation, const TimelineStyle& style = {});

}  // namespace penstock::plan
