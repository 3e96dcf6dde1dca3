#include "plan/schedule/recomputation_slots.h"

#include <algorithm>

namespace penstock::plan {

int recomputation_slots(const RankProgram& program, StageIndex stage) {
  int between = 0, most = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind != InstructionKind::Compute || instruction.work.stage != stage) continue;
    if (instruction.work.kind == ActionKind::InputGradient) most = std::max(most, ++between);
    if (instruction.work.kind == ActionKind::WeightGradient) --between;
  }
  return most;
}

}  // namespace penstock::plan
