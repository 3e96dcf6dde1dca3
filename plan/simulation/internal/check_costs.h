// Whether costs fit a program, and all times that can follow from them fit an int64.
#pragma once

#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

struct ProgramSize {
  int ranks = 0;
  int stages = 0;
  int64_t actions = 0;  // of all ranks
  int updates = 1;      // steps that they span
};

// With waits that slow an action down to one block of `blocks`; 1: none do.
Ticks longest_time(const ProgramSize& size, int32_t blocks);

// InvalidArgument unless there are costs of every stage, and updates of every rank before one step or none.
Status check_counts(const ProgramSize& size, const SimulationCosts& costs);

// InvalidArgument as simulate() promises.
Status check_costs(const ProgramSize& size, const SimulationCosts& costs);

}  // namespace penstock::plan::internal
