#include "plan/schedule/program.h"

#include <algorithm>
#include <map>
#include <utility>

namespace penstock::plan {
namespace {

// Forwards held by whatever `bucket` groups together, along one rank's list. A pair runs both halves at once:
// its forward has started before its backward ends.
class HeldForwards {
 public:
  HeldForwards(const ComputeProgram& program, bool until_weight_gradient)
      : forward_only_(program.forward_only),
        split_end_(until_weight_gradient ? ActionKind::WeightGradient : ActionKind::InputGradient) {}

  template <typename Bucket>
  void run(const Action& action, Bucket&& bucket) {
    add_if_forward(action.work, bucket(action.work));
    if (action.overlapped) add_if_forward(*action.overlapped, bucket(*action.overlapped));
    take_if_last_backward(action.work, bucket(action.work));
    if (action.overlapped) take_if_last_backward(*action.overlapped, bucket(*action.overlapped));
  }

 private:
  static void add_if_forward(const Work& work, std::pair<int, int>& held_and_peak) {
    if (work.kind != ActionKind::Forward) return;
    held_and_peak.second = std::max(held_and_peak.second, ++held_and_peak.first);
  }

  void take_if_last_backward(const Work& work, std::pair<int, int>& held_and_peak) const {
    const bool ends = forward_only_ || work.kind == ActionKind::Backward || work.kind == split_end_;
    if (ends) --held_and_peak.first;
  }

  bool forward_only_;  // then nothing is kept for a backward
  ActionKind split_end_;
};

template <typename Visit>
void for_each_work(const std::vector<Action>& actions, Visit&& visit) {
  for (const Action& action : actions) {
    visit(action.work);
    if (action.overlapped) visit(*action.overlapped);
  }
}

}  // namespace

bool ComputeProgram::has_replicas() const {
  return std::any_of(placement.begin(), placement.end(),
                     [](const auto& ranks_of_stage) { return ranks_of_stage.size() > 1; });
}

RankIndex ComputeProgram::rank_of(StageIndex stage, MicrobatchIndex microbatch) const {
  const auto& replicas = placement[stage.value];
  return replicas[replica_of.empty() ? 0 : replica_of[microbatch.value]];
}

std::vector<std::vector<RankIndex>> loop_placement(int ranks, int stages_per_rank) {
  std::vector<std::vector<RankIndex>> placement;
  for (int stage = 0; stage < ranks * stages_per_rank; ++stage)
    placement.push_back({RankIndex(stage % ranks)});
  return placement;
}

std::vector<std::vector<RankIndex>> v_placement(int ranks) {
  std::vector<std::vector<RankIndex>> placement;
  for (int stage = 0; stage < 2 * ranks; ++stage)
    placement.push_back({RankIndex(std::min(stage, 2 * ranks - 1 - stage))});
  return placement;
}

bool accumulates_in_microbatch_order(const ComputeProgram& program) {
  if (program.has_replicas()) return false;
  std::vector<int> last_input(program.stages(), -1), last_weight = last_input;  // B counts as both
  int last_loss = -1;
  bool in_order = true;
  const auto follow = [&](int& previous, const Work& work) {
    in_order = in_order && work.microbatch.value > previous;
    previous = work.microbatch.value;
  };
  for (const auto& actions : program.actions) {
    for_each_work(actions, [&](const Work& work) {
      if (work.stage == program.loss_stage() && work.kind == ActionKind::Forward) follow(last_loss, work);
      if (starts_backward(work.kind)) follow(last_input[work.stage.value], work);
      if (ends_backward(work.kind)) follow(last_weight[work.stage.value], work);
    });
  }
  return in_order;
}

std::vector<int> high_water_per_stage(const ComputeProgram& program) {
  std::vector<int> high_water(program.stages(), 0);
  for (const auto& actions : program.actions) {
    std::map<int, std::pair<int, int>> of_stage;
    HeldForwards held(program, /*until_weight_gradient=*/true);
    for (const Action& action : actions) {
      held.run(
          action, [&](const Work& work) -> auto& { return of_stage[work.stage.value]; });
    }
    for (const auto& [stage, held_and_peak] : of_stage) {
      high_water[stage] = std::max(high_water[stage], held_and_peak.second);
    }
  }
  return high_water;
}

std::vector<int> peak_activations_per_rank(const ComputeProgram& program, bool until_weight_gradient) {
  std::vector<int> peaks;
  for (const auto& actions : program.actions) {
    std::pair<int, int> held_and_peak;
    HeldForwards held(program, until_weight_gradient);
    for (const Action& action : actions)
      held.run(
          action, [&](const Work&) -> auto& { return held_and_peak; });
    peaks.push_back(held_and_peak.second);
  }
  return peaks;
}

}  // namespace penstock::plan
