// V-Half (Qi, Wan, Amar, 2024): half of 1F1B's activations, 2 floor((P+2)/2) half-stage ones on every rank.
//
// Building block: F lo of rank r in slot 2r, F hi in 3P-2-r, I hi in 3P-1+x+2r, I lo in 6P-2+x-r; x = 3 where
// P is even, or two pieces would meet. Bubble max(0, 6P-3k-1) slots with k that peak, for F = I = W and
// m >= 2P; it does not grow with m while W+2B >= 2F and W+2F >= 2B, B being I.
#include "plan/schedule/families/v_split.h"

namespace penstock::plan::families {

ComputeProgram v_half(const ScheduleRequest& request) {
  const int ranks = request.ranks;
  const int shift = ranks % 2 == 0 ? 3 : 0;
  BuildingBlock block{.of_rank = {}, .splits_backward = true};
  for (int rank = 0; rank < ranks; ++rank) {
    block.of_rank.push_back({.forward_low = 2 * rank,
                             .forward_high = 3 * ranks - 2 - rank,
                             .backward_high = 3 * ranks - 1 + shift + 2 * rank,
                             .backward_low = 6 * ranks - 2 + shift - rank});
  }
  return v_split_program(request, block, 2 * ((ranks + 2) / 2));
}

}  // namespace penstock::plan::families
