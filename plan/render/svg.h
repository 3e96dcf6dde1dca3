// Draws a simulated schedule as a picture: a lane a rank, a cell an action, and under each lane how many
// forwards the rank holds.
#pragma once

#include <string>

#include "plan/schedule/program.h"
#include "plan/simulation/costs.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

struct SvgStyle {
  std::string subtitle = {};          // under the title, which is made of the program's name and shape
  TickScale scale = {};               // of the axis
  double held_budget = 0;             // forwards that a rank may hold: a dashed line; 0: none
  std::string held_budget_name = {};  // beside that line: "memory budget 80GB"
  int ranks_max = 64;                 // lanes drawn
  int actions_max = 20'000;           // cells drawn; those that start first
};

// A whole SVG file, without scripts or outside references. Colours tell the kinds of action apart for
// colour-blind eyes too; a rank's later stages are lighter; an overlapped pair is a cell in two halves; what
// is grey is idle. What is left out is said under the drawing. Text from outside is escaped.
std::string timeline_svg(const ComputeProgram& program, const Simulation& simulation,
                         const SvgStyle& style = {});

}  // namespace penstock::plan
