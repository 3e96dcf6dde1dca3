// V-Min (Qi, Wan, Amar, 2024): least memory of the V schedules, 2 floor((P+4)/3) half-stage activations on
// every rank, a third of 1F1B's for large P.
//
// Building block: F lo of rank r in slot r, F hi in 2P-1-r, I hi in 2P+x+r, I lo in 4P+x-1-r; x = 2 where 3
// divides P, or two pieces would meet. Bubble max(0, 6P-3k-1) slots with k that peak, for F = I = W and
// m >= 2P (up to 3 more where P = 2 mod 3). Where F, I and W differ much the bubble grows with m: the block is
// stamped for equal ones.
#include "plan/schedule/families/v_split.h"

namespace penstock::plan::families {

ComputeProgram v_min(const ScheduleRequest& request) {
  const int ranks = request.ranks;
  const int shift = ranks % 3 == 0 ? 2 : 0;
  BuildingBlock block{.of_rank = {}, .splits_backward = true};
  for (int rank = 0; rank < ranks; ++rank) {
    block.of_rank.push_back({.forward_low = rank,
                             .forward_high = 2 * ranks - 1 - rank,
                             .backward_high = 2 * ranks + shift + rank,
                             .backward_low = 4 * ranks + shift - 1 - rank});
  }
  return v_split_program(request, block, 2 * ((ranks + 4) / 3));
}

}  // namespace penstock::plan::families
