#include "plan/generation/internal/closed_forms.h"

#include <optional>

#include "plan/schedule/families.h"

namespace penstock::plan::internal {
namespace {

std::optional<int> kind_of(const Action& action) {
  if (action.overlapped) return std::nullopt;
  switch (action.work.kind) {
    case ActionKind::Forward:
      return kForward;
    case ActionKind::InputGradient:
      return kInputGradient;
    case ActionKind::WeightGradient:
      return kWeightGradient;
    case ActionKind::Backward:
      return std::nullopt;
  }
  return std::nullopt;
}

// Nothing where a lane leaves microbatch order or a backward is whole.
std::optional<Orders> to_orders(const Problem& problem, const ComputeProgram& program) {
  Orders orders(problem.ranks);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    std::vector<int> next(problem.lanes_per_rank(), 0);
    for (const Action& action : program.actions[rank]) {
      const std::optional<int> kind = kind_of(action);
      if (!kind) return std::nullopt;
      const int lane = (action.work.stage.value < problem.ranks ? 0 : kKinds) + *kind;
      if (action.work.microbatch.value != next[lane]++) return std::nullopt;
      orders[rank].push_back({action.work.microbatch.value, lane});
    }
  }
  return orders;
}

bool keeps_limits(const Problem& problem, const Orders& orders) {
  const std::vector<int64_t> peaks = memory_peaks(problem, orders);
  for (int rank = 0; rank < problem.ranks; ++rank)
    if (peaks[rank] > problem.limits[rank]) return false;
  return true;
}

}  // namespace

std::vector<Orders> closed_forms_within_limits(const Problem& problem) {
  const std::vector<const char*> names = problem.stages_per_rank == 1
                                             ? std::vector<const char*>{"zb-h1", "zb-h2"}
                                             : std::vector<const char*>{"zb-v", "v-half", "v-min"};
  std::vector<Orders> found;
  for (const char* name : names) {
    ScheduleRequest request;
    request.name = name;
    request.ranks = problem.ranks;
    request.microbatches = problem.microbatches;
    const StatusOr<ComputeProgram> program = generate(request);
    if (!program.ok()) continue;  // a shape that the family does not take
    std::optional<Orders> orders = to_orders(problem, *program);
    if (orders && keeps_limits(problem, *orders)) found.push_back(*std::move(orders));
  }
  return found;
}

}  // namespace penstock::plan::internal
