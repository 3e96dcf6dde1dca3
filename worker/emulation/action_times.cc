#include "worker/emulation/action_times.h"

#include <utility>

#include "base/check.h"

namespace penstock::worker {

ActionTimes::ActionTimes(const plan::RankProgram& program, plan::EmulatedCosts costs)
    : costs_(std::move(costs)), microbatches_(program.microbatches) {
  PENSTOCK_CHECK(program.stages <= static_cast<int>(costs_.stages.size()),
                 "costs of {} stages, {} in the program", costs_.stages.size(), program.stages);
  if (costs_.overlapped_pair_ns == 0) return;
  const auto& instructions = program.instructions;
  for (size_t i = 0; i + 1 < instructions.size(); ++i) {
    if (instructions[i].overlaps_next) share_out(instructions[i].work, instructions[i + 1].work);
  }
}

void ActionTimes::share_out(const plan::Work& first, const plan::Work& second) {
  const auto key = [&](plan::Work work) {
    work.microbatch = MicrobatchIndex(work.microbatch.value % microbatches_);
    return work;
  };
  const Duration pair(costs_.overlapped_pair_ns);
  const auto of_first = static_cast<double>(alone(first).count());
  const auto of_both = of_first + static_cast<double>(alone(second).count());
  const double share = of_both > 0 ? of_first / of_both : 0;
  const Duration taken(static_cast<int64_t>(share * static_cast<double>(pair.count())));
  in_pairs_[key(first)] = taken;
  in_pairs_[key(second)] = pair - taken;
}

Duration ActionTimes::alone(const plan::Work& work) const {
  const plan::EmulatedCosts::Stage& stage = costs_.stages[static_cast<size_t>(work.stage.value)];
  switch (work.kind) {
    case plan::ActionKind::Forward:
      return Duration(stage.forward_ns);
    case plan::ActionKind::Backward:
      return Duration(stage.backward_ns);
    case plan::ActionKind::InputGradient:
      return Duration(stage.input_gradient_ns);
    case plan::ActionKind::WeightGradient:
      return Duration(stage.weight_gradient_ns);
  }
  return Duration::zero();
}

Duration ActionTimes::of(StageIndex stage, plan::ActionKind kind, MicrobatchIndex microbatch) const {
  const plan::Work work{stage, kind, microbatch};
  const auto paired = in_pairs_.find(work);
  return paired == in_pairs_.end() ? alone(work) : paired->second;
}

}  // namespace penstock::worker
