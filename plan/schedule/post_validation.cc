#include "plan/schedule/post_validation.h"

#include <algorithm>

namespace penstock::plan {

std::string why_not_post_validated(const ComputeProgram& program) {
  if (program.forward_only) return "it has no optimizer step";
  if (program.version_rule != WeightVersionRule::Synchronous || program.updates != 1) {
    return "it is not synchronous, and has no barrier to go without";
  }
  if (program.has_replicas())
    return "it holds stages on two ranks, which meet for the sum of their gradients";
  for (int stage = 0; stage < std::max(program.stages(), program.ranks); ++stage) {
    const bool is_own = stage < std::min(program.stages(), program.ranks) &&
                        program.placement[stage].front() == RankIndex(stage);
    if (!is_own) return "it needs one stage a rank, in the order of the ranks";
  }
  return "";
}

std::vector<int> validation_points(const ComputeProgram& program) {
  const auto validates_before = [&](const Action& action) {
    const auto needs = [&](const Work& work) {
      return work.kind != ActionKind::Forward || work.stage == program.loss_stage();
    };
    return needs(action.work) || (action.overlapped && needs(*action.overlapped));
  };
  std::vector<int> points;
  for (const std::vector<Action>& actions : program.actions) {
    const auto first = std::find_if(actions.begin(), actions.end(), validates_before);
    points.push_back(static_cast<int>(first - actions.begin()));
  }
  return points;
}

}  // namespace penstock::plan
