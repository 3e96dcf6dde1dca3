// Breadth first over the loop (Lamy-Poirier, 2023): all forwards of a rank's first stage, then all of its
// second, ...; backwards stage by stage from the last. Makespan (mV+P-1)(F+X) for m >= P, as interleaved
// 1F1B, with all mV activations held; below P a rank waits for its own earlier stage to come round.
// looped-bfs runs a stage's backwards in microbatch order, looped-bfs-lifo last in, first out, as PyTorch's
// ScheduleLoopedBFS does.
#include "plan/schedule/families/family.h"

namespace penstock::plan::families {

ComputeProgram looped_bfs(const ScheduleRequest& request) {
  ComputeProgram program = loop_program(request);
  const int chunks = request.stages_per_rank;
  for (int rank = 0; rank < request.ranks; ++rank) {
    const auto run_chunk = [&](int chunk, ActionKind kind) {
      for (int microbatch = 0; microbatch < request.microbatches; ++microbatch)
        append(program.actions[rank], chunk * request.ranks + rank, kind, microbatch);
    };
    for (int chunk = 0; chunk < chunks; ++chunk) run_chunk(chunk, ActionKind::Forward);
    for (int chunk = chunks; chunk-- > 0;) run_chunk(chunk, ActionKind::Backward);
  }
  return program;
}

ComputeProgram looped_bfs_lifo(const ScheduleRequest& request) {
  ComputeProgram program = looped_bfs(request);
  const int chunks = request.stages_per_rank;
  for (auto& actions : program.actions) {
    for (int chunk = chunks; chunk < 2 * chunks; ++chunk) {
      const auto first = actions.begin() + static_cast<std::ptrdiff_t>(chunk) * request.microbatches;
      std::reverse(first, first + request.microbatches);
    }
  }
  return program;
}

}  // namespace penstock::plan::families
