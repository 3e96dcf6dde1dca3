// Writes a program by playing it: slot after slot, every rank that is free chooses what to run next among
// what has its inputs, by a rule of the family.
//
// Cost: one choice for every piece of work, and one for every output that reaches a rank.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "plan/schedule/dataflow.h"
#include "plan/schedule/program.h"

namespace penstock::plan::families {

struct GreedySlots {  // 1 or 2 each
  int forward = 1;
  int backward = 1;  // B or I
};

class GreedyPlay {
 public:
  // Fills `program`'s action lists, which are empty; its shape and placement are set.
  GreedyPlay(ComputeProgram& program, const GreedySlots& slots)
      : program_(program),
        slots_(slots),
        stages_(program.stages()),
        microbatches_(program.total_microbatches()),
        ends_(size_t{2} * stages_ * microbatches_, kNever),
        busy_until_(program.ranks, 0) {}

  // Whether all that `work` needs has ended: its input from a neighbour and, of a backward, its own forward.
  bool can_run(const Work& work) const {
    if (starts_backward(work.kind) && !has_ended(true, work.stage, work.microbatch)) return false;
    const auto input = incoming(work, stages_);
    return !input || has_ended(input->flow == Flow::Activation, input->source, input->microbatch);
  }

  // choose(rank) returns work that can run, or none to leave the slot idle; it is asked again when more can.
  template <typename Choose>
  void run(Choose&& choose) {
    for (int rank = 0; rank < program_.ranks; ++rank) wake(rank, now_);
    for (; awake_ > 0; ++now_) {
      std::vector<int> ranks;
      ranks.swap(agenda_[now_ % kAgenda]);
      awake_ -= ranks.size();
      for (const int rank : ranks) {
        if (busy_until_[rank] > now_) continue;
        if (const std::optional<Work> work = choose(rank)) begin(rank, *work);
      }
    }
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kAgenda = 3;  // slots: nothing takes longer than two

  bool has_ended(bool is_forward, StageIndex stage, MicrobatchIndex microbatch) const {
    return ends_[index(is_forward, stage, microbatch)] <= now_;
  }
  size_t index(bool is_forward, StageIndex stage, MicrobatchIndex microbatch) const {
    return (size_t{is_forward ? 0u : 1u} * stages_ + stage.value) * microbatches_ + microbatch.value;
  }

  void wake(int rank, int64_t slot) {
    agenda_[slot % kAgenda].push_back(rank);
    ++awake_;
  }

  void begin(int rank, const Work& work) {
    const bool is_forward = work.kind == ActionKind::Forward;
    const int slots = is_forward ? slots_.forward : starts_backward(work.kind) ? slots_.backward : 1;
    const int64_t end = now_ + slots;
    program_.actions[rank].push_back({work, std::nullopt});
    busy_until_[rank] = end;
    wake(rank, end);
    if (work.kind == ActionKind::WeightGradient) return;
    ends_[index(is_forward, work.stage, work.microbatch)] = end;
    const auto output = outgoing(work, stages_);
    if (!output) return;
    const int consumer = program_.rank_of(output->target, output->microbatch).value;
    if (consumer != rank) wake(consumer, end);
  }

  ComputeProgram& program_;
  GreedySlots slots_;
  size_t stages_;
  size_t microbatches_;
  int64_t now_ = 0;
  std::vector<int64_t> ends_;  // [forward or backward, stage, microbatch]
  std::vector<int64_t> busy_until_;
  std::array<std::vector<int>, kAgenda> agenda_;  // ranks to ask, by slot
  size_t awake_ = 0;
};

}  // namespace penstock::plan::families
