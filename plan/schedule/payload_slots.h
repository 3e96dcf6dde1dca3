// How many payloads of a stage are alive at once: the slots of the pools that hold, for each of its blocks with experts,
// rows that a backward still has to read.
//
//     inputs              rows that went into the experts: from F to the last consumer, B, or W where the backward is split
//     recomputed_inputs   the same in a block that runs again before its backward: for as long as F runs, and from the
//                         beginning of B or I to the end of B or W
//     output_gradients    rows of gradients that came to the experts: from the beginning of I to the end of W, or while
//                         B runs
//
// A two-batch overlap needs no more of them: a slot holds the rows of both halves, one behind the other, and both come
// and go with the microbatch.
//
// Counted along the rank's instructions, the halves of an overlapped pair in turn, as a CPU runs them. `inputs` is then H_s
// (high_water_per_stage) where no pair has its backward first. Pure; any thread.
#pragma once

#include "plan/schedule/lowered.h"

namespace penstock::plan {

struct PayloadHighWater {
  int inputs = 0;
  int recomputed_inputs = 0;
  int output_gradients = 0;
  auto operator<=>(const PayloadHighWater&) const = default;
};

// All 0 where the program computes nothing of `stage`.
PayloadHighWater payload_high_water(const RankProgram& program, StageIndex stage);

}  // namespace penstock::plan
