// What passes between stages: forwards hand an activation to the next
// stage, backwards a gradient to the previous.
#pragma once

#include <optional>

#include "base/ids.h"
#include "plan/schedule/action.h"
#include "plan/schedule/lowered.h"

namespace penstock::plan {

// One boundary tensor on its way from a stage to its neighbour.
struct Passage {
  StageIndex source;
  StageIndex target;
  MicrobatchIndex microbatch;
  Flow flow = Flow::Activation;

  auto operator<=>(const Passage&) const = default;
};

// The tensor that `target` waits for.
inline Passage passage_into(StageIndex target, MicrobatchIndex microbatch, Flow flow) {
  const int64_t before = flow == Flow::Gradient ? 1 : -1;
  return {StageIndex(target.value + before), target, microbatch, flow};
}

// The tensor that `work` needs from a neighbour: none at the pipeline's ends, nor for a weight gradient.
inline std::optional<Passage> incoming(const Work& work, int stages) {
  const StageIndex before(int64_t{work.stage.value} - 1), after(int64_t{work.stage.value} + 1);
  if (work.kind == ActionKind::Forward && before.value >= 0) {
    return Passage{before, work.stage, work.microbatch, Flow::Activation};
  }
  if (starts_backward(work.kind) && after.value < stages) {
    return Passage{after, work.stage, work.microbatch, Flow::Gradient};
  }
  return std::nullopt;
}

// The tensor that `work` leaves for a neighbour.
inline std::optional<Passage> outgoing(const Work& work, int stages) {
  const StageIndex before(int64_t{work.stage.value} - 1), after(int64_t{work.stage.value} + 1);
  if (work.kind == ActionKind::Forward && after.value < stages) {
    return Passage{work.stage, after, work.microbatch, Flow::Activation};
  }
  if (starts_backward(work.kind) && before.value >= 0) {
    return Passage{work.stage, before, work.microbatch, Flow::Gradient};
  }
  return std::nullopt;
}

// The passage that a transfer or hand-off instruction moves. PostReceive and WaitReceive name the stage that
// receives, the others the one that sends.
inline Passage passage_of(const Instruction& instruction) {
  const int64_t forth = instruction.flow == Flow::Activation ? 1 : -1;
  const bool receives =
      instruction.kind == InstructionKind::PostReceive || instruction.kind == InstructionKind::WaitReceive;
  const StageIndex named = instruction.work.stage;
  const StageIndex other(named.value + (receives ? -forth : forth));
  return Passage{receives ? other : named, receives ? named : other, instruction.work.microbatch,
                 instruction.flow};
}

// FNV-1a over words, byte by byte.
class WordDigest {
 public:
  void add(uint32_t word) {
    for (int byte = 0; byte < 4; ++byte) state_ = (state_ ^ ((word >> (8 * byte)) & 0xff)) * 0x100000001b3ULL;
  }
  void add(int32_t word) { add(static_cast<uint32_t>(word)); }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ULL;
};

// Over the passages of one link in order; transfer_digest in lowered.h is this over a program.
class TransferDigest {
 public:
  void add(const Passage& passage) {
    words_.add(static_cast<uint32_t>(passage.source.value));
    words_.add(static_cast<uint32_t>(passage.flow));
    words_.add(static_cast<uint32_t>(passage.microbatch.value));
  }
  // After the last passage, of a program whose steps are post-validated.
  void add_provisional(int32_t messages) { words_.add(messages); }
  uint64_t value() const { return words_.value(); }

 private:
  WordDigest words_;
};

}  // namespace penstock::plan
