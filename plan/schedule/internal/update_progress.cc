#include "plan/schedule/internal/update_progress.h"

#include <algorithm>

#include "plan/schedule/dataflow.h"

namespace penstock::plan::internal {

std::vector<std::vector<StageIndex>> stages_of_ranks(const ComputeProgram& program) {
  std::vector<std::vector<StageIndex>> own(program.ranks);
  for (int stage = 0; stage < program.stages(); ++stage) {
    for (const RankIndex rank : program.placement[stage]) own[rank.value].push_back(StageIndex(stage));
  }
  return own;
}

UpdateProgress::UpdateProgress(const ComputeProgram& program, RankIndex rank,
                               const std::vector<StageIndex>& own_stages)
    : own_stages_(own_stages),
      microbatches_(program.microbatches),
      updates_(program.updates),
      forward_only_(program.forward_only),
      left_of_stage_(own_stages.size() * updates_, 0),
      left_of_update_(updates_, 0) {
  const auto count = [&](const Work& work) {
    if (!ends_backward(work.kind)) return;
    ++left_of(work);
    ++left_of_update_[update_of(work)];
  };
  for (const Action& action : program.actions[rank.value]) {
    count(action.work);
    if (action.overlapped) count(*action.overlapped);
  }
}

bool UpdateProgress::finish(const Work& work) {
  if (!ends_backward(work.kind)) return false;
  --left_of_update_[update_of(work)];
  return --left_of(work) == 0;
}

std::optional<int> UpdateProgress::take_finished_update() {
  if (forward_only_ || next_ == static_cast<int>(updates_) || left_of_update_[next_] > 0) return std::nullopt;
  return next_++;
}

int UpdateProgress::local(StageIndex stage) const {
  return static_cast<int>(std::lower_bound(own_stages_.begin(), own_stages_.end(), stage) -
                          own_stages_.begin());
}

}  // namespace penstock::plan::internal
