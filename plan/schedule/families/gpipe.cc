// All forwards, then all backwards (Huang et al., 2019). Makespan (m+P-1)(F+X); every rank holds m
// activations. Backwards run in microbatch order, so that gradients accumulate as in every other schedule;
// the last-in-first-out order of the paper's figure takes the same time and is a variant of its own.
#include "plan/schedule/families/family.h"

namespace penstock::plan::families {

ComputeProgram gpipe(const ScheduleRequest& request) {
  ComputeProgram program = loop_program(request);
  for (int rank = 0; rank < request.ranks; ++rank) {
    for (const ActionKind kind : {ActionKind::Forward, ActionKind::Backward}) {
      for (int microbatch = 0; microbatch < request.microbatches; ++microbatch) {
        append(program.actions[rank], rank, kind, microbatch);
      }
    }
  }
  return program;
}

}  // namespace penstock::plan::families
