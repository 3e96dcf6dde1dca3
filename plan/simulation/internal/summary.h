// What follows from the times of the actions.
#pragma once

#include "plan/simulation/internal/deliveries.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

// Adds up busy and idle times, spans and hand-offs. `simulation` has the actions of every rank.
void summarise(const Deliveries& deliveries, Simulation& simulation);

}  // namespace penstock::plan::internal
