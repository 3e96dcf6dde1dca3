// Whether costs fit a program, and all times that can follow from them fit an int64.
#pragma once

#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

struct ProgramSize {
  int ranks = 0;
  int stages = 0;
  int64_t actions = 0;  // of all ranks
};

// InvalidArgument as simulate() promises.
Status check_costs(const ProgramSize& size, const SimulationCosts& costs);

}  // namespace penstock::plan::internal
