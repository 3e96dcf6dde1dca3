// 1F1B with a flush (PipeDream-Flush): rank r runs P-1-r forwards ahead, then one forward and one backward in
// turn, then the backwards that are left. Makespan (m+P-1)(F+X) as GPipe; rank r holds only min(P-r, m)
// activations.
#include <algorithm>

#include "plan/schedule/families/family.h"

namespace penstock::plan::families {

ComputeProgram one_f_one_b(const ScheduleRequest& request) {
  ComputeProgram program = loop_program(request);
  for (int rank = 0; rank < request.ranks; ++rank) {
    auto& actions = program.actions[rank];
    const int warm_up = std::min(request.ranks - 1 - rank, request.microbatches);
    for (int microbatch = 0; microbatch < warm_up; ++microbatch)
      append(actions, rank, ActionKind::Forward, microbatch);
    for (int microbatch = 0; microbatch < request.microbatches; ++microbatch) {
      const int ahead = microbatch + warm_up;
      if (ahead < request.microbatches) append(actions, rank, ActionKind::Forward, ahead);
      append(actions, rank, ActionKind::Backward, microbatch);
    }
  }
  return program;
}

}  // namespace penstock::plan::families
