// ZB-V (Qi et al., 2024, section 6; the hand-written order that PyTorch's ScheduleZBVZeroBubble also uses).
// On rank r, with stages lo = r and hi = 2P-1-r: 2(P-r)-1 forwards of lo; r times (F hi, F lo); P-r times
// (F hi, I hi, W hi); then (F, I, W of lo; F, I, W of hi) while forwards are left; r times (I lo, I hi); P-r
// times (I lo, W lo); then the W that are left, oldest first, hi before lo.
//
// Every rank is busy from its first to its last action when F = I = W: span 2m(F+I+W) in half stages, makespan
// P-1 more, from m = 2P-1 on. 2P half-stage activations on every rank. With m = P the span is P-1 slots longer
// than the work; fewer microbatches run in the order that they have among P.
#include "plan/schedule/families/family.h"

namespace penstock::plan::families {
namespace {

// One rank's list under construction. Every kind of every stage counts its own microbatches up; those that
// only pad the rule are left out.
class RankWriter {
 public:
  RankWriter(std::vector<Action>& actions, int low, int high, int microbatches)
      : actions_(actions), stages_{low, high}, microbatches_(microbatches) {}

  void forward(int chunk) { next(chunk, ActionKind::Forward); }
  void input_gradient(int chunk) { next(chunk, ActionKind::InputGradient); }
  void weight_gradient(int chunk) { next(chunk, ActionKind::WeightGradient); }
  void split_backward(int chunk) {
    input_gradient(chunk);
    weight_gradient(chunk);
  }
  int count(int chunk, ActionKind kind) const { return counts_[chunk][static_cast<size_t>(kind)]; }

 private:
  void next(int chunk, ActionKind kind) {
    const int microbatch = counts_[chunk][static_cast<size_t>(kind)]++;
    if (microbatch < microbatches_) append(actions_, stages_[chunk], kind, microbatch);
  }

  std::vector<Action>& actions_;
  int stages_[2];
  int microbatches_;
  int counts_[2][4] = {};  // [chunk][kind]
};

}  // namespace

ComputeProgram zb_v(const ScheduleRequest& request) {
  constexpr int kLow = 0, kHigh = 1;
  ComputeProgram program = v_program(request);
  const int ranks = request.ranks;
  const int n = std::max(request.microbatches, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    RankWriter write(program.actions[rank], rank, 2 * ranks - 1 - rank, request.microbatches);
    for (int k = 0; k < 2 * (ranks - rank) - 1; ++k) write.forward(kLow);
    for (int k = 0; k < rank; ++k) {
      write.forward(kHigh);
      write.forward(kLow);
    }
    for (int k = 0; k < ranks - rank; ++k) {
      write.forward(kHigh);
      write.split_backward(kHigh);
    }
    while (write.count(kHigh, ActionKind::Forward) < n) {
      if (write.count(kLow, ActionKind::Forward) < n) write.forward(kLow);
      write.split_backward(kLow);
      write.forward(kHigh);
      write.split_backward(kHigh);
    }
    for (int k = 0; k < rank; ++k) {
      write.input_gradient(kLow);
      write.input_gradient(kHigh);
    }
    for (int k = 0; k < ranks - rank; ++k) {
      write.input_gradient(kLow);
      write.weight_gradient(kLow);
    }
    for (const int chunk : {kHigh, kLow})
      while (write.count(chunk, ActionKind::WeightGradient) < n) write.weight_gradient(chunk);
  }
  return program;
}

}  // namespace penstock::plan::families
