// One microbatch in the pipeline at a time: its forward runs through all stages, then its backward comes
// back. Makespan m P (F+X); one activation on every rank. What every other schedule is measured against.
#include "plan/schedule/families/family.h"

namespace penstock::plan::families {

ComputeProgram naive(const ScheduleRequest& request) {
  ComputeProgram program = loop_program(request);
  for (int rank = 0; rank < request.ranks; ++rank) {
    for (int microbatch = 0; microbatch < request.microbatches; ++microbatch) {
      append(program.actions[rank], rank, ActionKind::Forward, microbatch);
      append(program.actions[rank], rank, ActionKind::Backward, microbatch);
    }
  }
  return program;
}

}  // namespace penstock::plan::families
