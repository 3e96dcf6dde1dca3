// From a building block with split backwards to a schedule within a limit of activations: v-min and v-half.
#pragma once

#include "plan/schedule/families/family.h"
#include "plan/schedule/families/timetable.h"

namespace penstock::plan::families {

// Pulls the repeated block left, W included, and plays the result once more with W as filler: forwards and
// input gradients keep their order, W run where the next of them cannot, oldest first, and where there is no W
// either, the next input gradient of hi. `may_hold` half-stage
// activations until W, the same on every rank; the block must need no more in its steady state.
//
// It always ends: of the work that is left, the piece that the pulled timetable starts first has all its
// inputs and, once the waiting W have run, its memory.
ComputeProgram v_split_program(const ScheduleRequest& request, const BuildingBlock& block, int may_hold);

}  // namespace penstock::plan::families
