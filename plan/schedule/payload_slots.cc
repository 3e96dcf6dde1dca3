#include "plan/schedule/payload_slots.h"

#include <algorithm>

namespace penstock::plan {

PayloadHighWater payload_high_water(const RankProgram& program, StageIndex stage) {
  PayloadHighWater high;
  int forwards = 0;   // whose backward has not ended
  int backwards = 0;  // begun and not ended
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind != InstructionKind::Compute || instruction.work.stage != stage) continue;
    const ActionKind kind = instruction.work.kind;
    const bool is_forward = kind == ActionKind::Forward;
    if (is_forward) ++forwards;
    if (starts_backward(kind)) ++backwards;
    high.inputs = std::max(high.inputs, forwards);
    high.recomputed_inputs = std::max(high.recomputed_inputs, backwards + (is_forward ? 1 : 0));
    high.output_gradients = std::max(high.output_gradients, backwards);
    if (is_forward && program.forward_only) --forwards;
    if (ends_backward(kind)) {
      --forwards;
      --backwards;
    }
  }
  return high;
}

}  // namespace penstock::plan
