#include "plan/schedule/forward_only.h"

#include <algorithm>
#include <tuple>

namespace penstock::plan {

ComputeProgram forward_only(const ComputeProgram& training, int microbatches) {
  ComputeProgram program;
  program.schedule = training.schedule;
  program.ranks = training.ranks;
  program.microbatches = microbatches;
  program.stages_per_rank = training.stages_per_rank;
  program.forward_only = true;
  program.actions.resize(static_cast<size_t>(training.ranks));
  for (int stage = 0; stage < training.stages(); ++stage) {
    const RankIndex rank = training.placement[static_cast<size_t>(stage)].front();
    program.placement.push_back({rank});
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      program.actions[static_cast<size_t>(rank.value)].push_back(
          single(StageIndex(stage), ActionKind::Forward, MicrobatchIndex(microbatch)));
    }
  }
  const auto place_in_wave = [](const Action& action) {
    const Work& work = action.work;
    return std::tuple(int64_t{work.microbatch.value} + work.stage.value, work.stage.value);
  };
  for (std::vector<Action>& of_rank : program.actions) {
    std::sort(of_rank.begin(), of_rank.end(),
              [&](const Action& a, const Action& b) { return place_in_wave(a) < place_in_wave(b); });
  }
  return program;
}

}  // namespace penstock::plan
