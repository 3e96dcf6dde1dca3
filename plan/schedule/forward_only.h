// The program of an evaluation: every stage's forward of every microbatch, where the stages are.
#pragma once

#include "plan/schedule/program.h"

namespace penstock::plan {

// On the placement of `training`, the first replica of each stage; with any microbatches >= 1, whatever the
// schedule of the training asks of its own number. Every rank runs its forwards in the order of (microbatch +
// stage, stage): a wave through the pipeline, in which each forward comes after the one that it needs, so that
// no rank waits for a later one of its own. A stage holds one activation at a time.
ComputeProgram forward_only(const ComputeProgram& training, int microbatches);

}  // namespace penstock::plan
