#include "plan/schedule/weight_versions.h"

#include <algorithm>

namespace penstock::plan {

WeightVersionsHeld weight_versions_held(const RankProgram& program) {
  WeightVersionsHeld held;
  int steps = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind == InstructionKind::OptimizerStep) ++steps;
    if (instruction.kind != InstructionKind::Compute) continue;
    const int needed = steps - instruction.weight_version + 1;
    held.by_all = std::max(held.by_all, needed);
    if (instruction.work.kind == ActionKind::Forward) held.by_forwards = std::max(held.by_forwards, needed);
  }
  return held;
}

}  // namespace penstock::plan
