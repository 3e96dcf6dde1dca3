// How good a program of a problem can be at most: lower bounds on the longest stage span, with proofs.
//
// Every bound looks at any program whatever, timed in any way, in any order of microbatches. P ranks, m
// microbatches, L the rank's limit; D is how long the pipeline behind a rank takes at least, from the end
// of its last forward of a microbatch to the start of its first input gradient of it, latencies included.
//
// work + start + end. Let y be the microbatch whose input gradient comes first on the rank, and x the one
//   whose forward comes last. Before y's input gradient the rank runs forwards only (a weight gradient
//   needs an input gradient before), and from its first action to there y alone takes all its forwards and
//   D: what the forwards that fit into L do not fill of that time is idle (start). From the end of x's last
//   forward to the last input gradient of the rank's first stage at least x's D passes, and the rank runs
//   only input and weight gradients of what it held when that forward ended, and that fits into L: the rest
//   is idle (end). Both idle times count where y's input gradient stands before x's last forward; if it
//   does not, all forwards stand before it, and either holds alone (then m must fit).
// through another rank. The first forward of rank q >= r starts at least the forwards of the stages between
//   after that of r. Up to its last input gradient q then runs all its work but the weight gradients left
//   over, and idles as above; every one left over is missing in the work that fills the end, so it shortens
//   this only where there is more work than wait. Then the gradient travels to r, which has at least one
//   weight gradient to go. For F = I = W = 1 on the V placement and q = P-1 this is 6m + 6P - 3k - 1 with k
//   the limit in half-stages, which Qi et al. state.
// memory x time. A microbatch holds a stage's memory from its forward through D to its weight gradient. All
//   of that together fits into L times the span.
// turns (one stage a rank). With at most K microbatches between forward and weight gradient, the (n+K)th
//   forward in time starts after n weight gradients, one of which belongs to the nth or a later forward:
//   each turn of K forwards takes F + D + I + W, and there are ceil(m / K) turns.
#pragma once

#include <string>

#include "plan/generation/internal/problem.h"

namespace penstock::plan::internal {

struct Bound {
  Ticks max_stage_span = 0;
  std::string reason;  // "rank 0: all its work, and 9 idle before its first input gradient"
};

Bound bound_of(const Problem& problem);

}  // namespace penstock::plan::internal
