// How many microbatches of a stage are between their I and their W at once: as many slots hold what recomputed blocks
// save in the forward that I begins with, and W reads. A whole backward needs none.
#pragma once

#include "plan/schedule/lowered.h"

namespace penstock::plan {

// The most, from the beginning of I to the end of W. zb-h1: r + 1 on rank r. Pure; any thread.
int recomputation_slots(const RankProgram& program, StageIndex stage);

}  // namespace penstock::plan
