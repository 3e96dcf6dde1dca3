// Optimizer steps without a barrier ("Zero Bubble Pipeline Parallelism", Qi et al., ICLR 2024, section 4 and
// appendix C): what of a program makes them possible, and where they are validated.
//
//     rank    0 | ... W W  step   F F F F F | F B ...        step      sums of squares so far go down the ranks;
//             1 |   ... W W  step   F F F F | B ...                    a rank updates its weights when they, so far,
//             2 |     ... W W  step   F F F | B ...                    ask for no clipping and are finite
//             3 |       ... W W  step       | F B ...        |         ValidateStep: the full norm, on its way up
//
// The last rank knows the full norm when it steps; the others hear it at their ValidateStep. When it asks for
// clipping or is not finite, each rank puts back what its provisional step overwrote, takes the step that a barrier
// would have taken, and runs its program from the start again; all ranks do, since all see the same norm. The
// messages of the abandoned warm-up have been sent: the target receives and drops Link::provisional_messages.
//
// ValidateStep stands before the rank's first backward, which adds to gradients that may still be needed; on the
// rank with the loss stage before its first forward, since the head forms its weight gradient there. No wait
// is new: a rank's first backward needs a gradient which the next rank makes behind its own ValidateStep. And what a
// rank receives before its ValidateStep its neighbour has sent before his: else that rank's first backward would
// come before the forward that the next rank's first backward needs.
#pragma once

#include <string>
#include <vector>

#include "plan/schedule/program.h"

namespace penstock::plan {

// Why steps of the program cannot be post-validated. Empty: they can, since every rank r holds stage r alone (ranks
// then hold the parameters in model order, one behind the other, and a running sum has the bits of the whole one),
// and weights are synchronous.
std::string why_not_post_validated(const ComputeProgram& program);

// [rank] place of the action before which it validates. Of a program that can.
std::vector<int> validation_points(const ComputeProgram& program);

}  // namespace penstock::plan
