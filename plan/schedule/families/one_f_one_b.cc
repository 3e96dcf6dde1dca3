// 1F1B with a flush (PipeDream-Flush): rank r runs P-1-r forwards ahead, then one forward and one backward in
// turn, then the backwards that are left. Makespan (m+P-1)(F+X) as GPipe; rank r holds only min(P-r, m)
// activations.
#include "plan/schedule/families/family.h"

namespace penstock::plan::families {

ComputeProgram one_f_one_b(const ScheduleRequest& request) {
  ComputeProgram program = loop_program(request);
  for (int rank = 0; rank < request.ranks; ++rank)
    append_1f1b(program.actions[rank], rank, request.ranks - 1 - rank, request.microbatches);
  return program;
}

}  // namespace penstock::plan::families
