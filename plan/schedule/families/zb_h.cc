// Handcrafted zero-bubble schedules (Qi et al., 2024): the weight gradient is split off and fills the drain.
// One rule with h = 1 (zb-h1) or 2 (zb-h2): rank r runs h(P-1-r) forwards ahead; then F, I_k, and W_{k-hr}
// once k >= hr; then the same without F; then the W that are left. With so few microbatches that the forwards
// end before k = hr, a W behind every I from there on.
//
// Span m(F+I+W) + (P-1)(F+I-hW) when F+I >= hW and m >= P (h = 1) or 2P-1 (h = 2). Activations held until I:
// h(P-1-r)+1 on rank r; until W: P everywhere (h = 1), 2P-1 (h = 2). zb-h1 keeps the peak of 1F1B. With m <= P
// both take (m+P-1)(F+I)+W when W <= F, which is the least.
#include "plan/schedule/families/family.h"

namespace penstock::plan::families {
namespace {

ComputeProgram zb_h(const ScheduleRequest& request, int h) {
  ComputeProgram program = loop_program(request);
  const int m = request.microbatches;
  for (int rank = 0; rank < request.ranks; ++rank) {
    auto& actions = program.actions[rank];
    const int ahead = std::min(h * (request.ranks - 1 - rank), m);
    const int lag = std::min(h * rank, m);
    int weight_gradients = 0;
    for (int k = 0; k < ahead; ++k) append(actions, rank, ActionKind::Forward, k);
    for (int k = 0; k < m; ++k) {
      if (k + ahead < m) append(actions, rank, ActionKind::Forward, k + ahead);
      append(actions, rank, ActionKind::InputGradient, k);
      if (k >= lag || k + ahead >= m) append(actions, rank, ActionKind::WeightGradient, weight_gradients++);
    }
    while (weight_gradients < m) append(actions, rank, ActionKind::WeightGradient, weight_gradients++);
  }
  return program;
}

}  // namespace

ComputeProgram zb_h1(const ScheduleRequest& request) {
  return zb_h(request, 1);
}

ComputeProgram zb_h2(const ScheduleRequest& request) {
  return zb_h(request, 2);
}

}  // namespace penstock::plan::families
