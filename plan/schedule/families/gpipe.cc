// All forwards, then all backwards (Huang et al., 2019). Makespan (m+P-1)(F+X); every rank holds m
// activations. gpipe runs backwards in microbatch order, so that gradients accumulate as in every other
// schedule; gpipe-lifo runs them last in, first out, as the paper's figure does, in the same time.
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

ComputeProgram gpipe_lifo(const ScheduleRequest& request) {
  ComputeProgram program = gpipe(request);
  for (auto& actions : program.actions) std::reverse(actions.begin() + request.microbatches, actions.end());
  return program;
}

}  // namespace penstock::plan::families
