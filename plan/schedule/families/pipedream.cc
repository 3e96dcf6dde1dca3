// 1F1B without a flush between optimizer steps: the pipeline drains once, after all updates.
//
// pipedream (Narayanan et al., 2019): a rank steps as soon as its last backward of an update has run; a
// forward takes the newest weights, its backward the same ones, which are kept until then. With m = 1, the
// paper's rule, stage s computes microbatch k with version max(0, k-(P-1-s)) and keeps P-s versions.
//
// pipedream-2bw (Narayanan et al., 2021): two versions; a step computes with the weights of the step before,
// version max(u-1, 0) for update u. A rank may run ahead by at most m forwards, or a forward would need
// weights that its own backwards have not made yet; with m < P-1 that cap costs idle time.
#include "plan/schedule/families/family.h"

namespace penstock::plan::families {
namespace {

ComputeProgram without_flush(const ScheduleRequest& request, WeightVersionRule rule, int most_ahead) {
  ComputeProgram program = loop_program(request);
  program.updates = request.updates;
  program.version_rule = rule;
  for (int rank = 0; rank < request.ranks; ++rank) {
    const int warm_up = std::min(request.ranks - 1 - rank, most_ahead);
    append_1f1b(program.actions[rank], rank, warm_up, program.total_microbatches());
  }
  return program;
}

}  // namespace

ComputeProgram pipedream(const ScheduleRequest& request) {
  return without_flush(request, WeightVersionRule::Stashed, request.ranks);
}

ComputeProgram pipedream_2bw(const ScheduleRequest& request) {
  return without_flush(request, WeightVersionRule::DoubleBuffered, request.microbatches);
}

}  // namespace penstock::plan::families
