// DualPipe and DualPipeV (DeepSeek-AI, 2024 and 2025): a forward and a backward of different microbatches run
// as an overlapped pair, so that each hides the other's communication.
//
// dualpipe-v: V placement, rank r of P with stages lo = r and hi = 2P-1-r. In order: 2(P-1-r) F lo; r+1 times
// (F lo, F hi); P-1-r times (I hi, W hi, F hi); m-2P+r+1 times the pairs (F lo & B hi, F hi & B lo), of which
// the last rank runs the very first one's halves apart; P-1-r times (B hi, F hi & B lo); r+1 times
// (B hi, B lo), of which the later half is split, I now and W later; P-1-r times (W, I lo); r+1 W. Delayed W
// run oldest first.
//
// dualpipe: stage s on ranks s and P-1-s, one pipeline in each direction with half of the microbatches. Rank
// r and its mirror run the lists of rank min(r, P-1-r) of dualpipe-v on P/2 ranks, one direction taking lo's
// part and the other hi's.
//
// P even for dualpipe. The papers ask for m >= 2P (dualpipe: in all); the lists exist from 2P-1 on (2P-2 in
// all), and fewer microbatches run in the order that they have among as many, an odd one more in the first
// direction. The idlest rank
// of dualpipe waits (P/2-1)(FB+B-3W), FB being a pair and B a whole backward, when F = I = W; every rank holds
// P+1 activations (2P+1 half-stage ones in dualpipe-v). Weights are held twice, or on half of the ranks.
#include <deque>

#include "plan/schedule/families/family.h"

namespace penstock::plan::families {
namespace {

enum class Backward : uint8_t { Whole, Split };

// Writes the list of one dualpipe-v rank. Half: lo or hi. Each half's forwards and backwards count their own
// microbatches up.
class Writer {
 public:
  Writer(std::vector<Action>& actions, int low, int high) : actions_(actions), stages_{low, high} {}

  void forward(int half) { actions_.push_back({next_forward(half), {}}); }

  void backward(int half, Backward how) {
    Work work = next_backward(half);
    if (how == Backward::Split) {
      work.kind = ActionKind::InputGradient;
      delayed_.push_back({work.stage, ActionKind::WeightGradient, work.microbatch});
    }
    actions_.push_back({work, {}});
  }

  void weight_gradient() {
    actions_.push_back({delayed_.front(), {}});
    delayed_.pop_front();
  }

  void pair(int forward_half, int backward_half) {
    const Work first = next_forward(forward_half);
    actions_.push_back({first, next_backward(backward_half)});
  }

 private:
  Work next_forward(int half) {
    return {StageIndex(stages_[half]), ActionKind::Forward, MicrobatchIndex(forwards_[half]++)};
  }
  Work next_backward(int half) {
    return {StageIndex(stages_[half]), ActionKind::Backward, MicrobatchIndex(backwards_[half]++)};
  }

  std::vector<Action>& actions_;
  int stages_[2];
  int forwards_[2] = {};
  int backwards_[2] = {};
  std::deque<Work> delayed_;
};

// microbatches >= 2 * ranks - 1.
std::vector<Action> list_of_rank(int rank, int ranks, int microbatches) {
  constexpr int kLow = 0, kHigh = 1;
  const int later = ranks - 1 - rank;
  std::vector<Action> actions;
  Writer write(actions, rank, 2 * ranks - 1 - rank);
  for (int k = 0; k < 2 * later; ++k) write.forward(kLow);
  for (int k = 0; k <= rank; ++k) {
    write.forward(kLow);
    write.forward(kHigh);
  }
  for (int k = 0; k < later; ++k) {
    write.backward(kHigh, Backward::Split);
    write.weight_gradient();
    write.forward(kHigh);
  }
  for (int k = 0; k < microbatches - 2 * ranks + rank + 1; ++k) {
    if (k == 0 && later == 0) {
      write.forward(kLow);
      write.backward(kHigh, Backward::Whole);
    } else {
      write.pair(kLow, kHigh);
    }
    write.pair(kHigh, kLow);
  }
  for (int k = 0; k < later; ++k) {
    write.backward(kHigh, Backward::Whole);
    write.pair(kHigh, kLow);
  }
  // Counted in single backwards, the first half is whole.
  for (int k = 0; k <= 2 * rank + 1; ++k) {
    const bool is_early = k < 2 * ((rank + 1) / 2) + (rank % 2 == 0 ? 1 : 0);
    write.backward(k % 2 == 0 ? kHigh : kLow, is_early ? Backward::Whole : Backward::Split);
  }
  for (int k = 0; k < later; ++k) {
    write.weight_gradient();
    write.backward(kLow, Backward::Split);
  }
  for (int k = 0; k <= rank; ++k) write.weight_gradient();
  return actions;
}

// The list with its microbatches renumbered: `renumber` returns none for one that only pads the rule. Of a
// pair the other half stays.
template <typename Renumber>
std::vector<Action> renumbered(const std::vector<Action>& list, Renumber&& renumber) {
  std::vector<Action> kept;
  kept.reserve(list.size());
  for (const Action& action : list) {
    std::optional<Work> first = renumber(action.work);
    std::optional<Work> second = action.overlapped ? renumber(*action.overlapped) : std::nullopt;
    if (!first) std::swap(first, second);
    if (first) kept.push_back({*first, second});
  }
  return kept;
}

}  // namespace

ComputeProgram dualpipe_v(const ScheduleRequest& request) {
  ComputeProgram program = v_program(request);
  const int n = std::max(request.microbatches, 2 * request.ranks - 1);
  for (int rank = 0; rank < request.ranks; ++rank) {
    program.actions[rank] = renumbered(list_of_rank(rank, request.ranks, n), [&](const Work& work) {
      return work.microbatch.value < request.microbatches ? std::optional(work) : std::nullopt;
    });
  }
  return program;
}

ComputeProgram dualpipe(const ScheduleRequest& request) {
  ComputeProgram program = two_way_program(request);
  const int half_ranks = request.ranks / 2;
  const int microbatches[2] = {(request.microbatches + 1) / 2, request.microbatches / 2};
  const int n = std::max(microbatches[0], request.ranks - 1);
  for (int rank = 0; rank < request.ranks; ++rank) {
    const bool is_mirror = rank >= half_ranks;
    const int half_rank = std::min(rank, request.ranks - 1 - rank);
    const auto renumber = [&](const Work& work) -> std::optional<Work> {
      const int direction = (work.stage.value < half_ranks) == is_mirror ? 1 : 0;
      if (work.microbatch.value >= microbatches[direction]) return std::nullopt;
      const int offset = direction == 0 ? 0 : microbatches[0];
      return Work{work.stage, work.kind, MicrobatchIndex(offset + work.microbatch.value)};
    };
    program.actions[rank] = renumbered(list_of_rank(half_rank, half_ranks, n), renumber);
  }
  return program;
}

}  // namespace penstock::plan::families
