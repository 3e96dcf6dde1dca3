// How long a step takes with a given split: the times of its stages, played.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "plan/planning/internal/playable.h"
#include "plan/planning/planner.h"
#include "plan/simulation/replay.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

class SplitPlayer {
 public:
  // Both must outlive it. FailedPrecondition: the program stops.
  static StatusOr<SplitPlayer> of(const PlanningRequest& request, const Playable& playable);

  // Takes the split's costs over, for the replay's next play. Times of stages as Partition::stage_ns. InvalidArgument: a step of
  // more than 146 years.
  Status set_split(const std::vector<int>& boundaries, const std::vector<int64_t>& stage_ns);
  Replay& replay() { return replay_; }

  // From one step to the next: of the last split, from its makespan.
  int64_t step_ns(Ticks makespan) const { return makespan / playable_->program.updates; }

  StatusOr<PlannedStep> play(Partition partition);

 private:
  SplitPlayer(const PlanningRequest& request, const Playable& playable, Replay replay);

  int64_t at_speed(int rank, int64_t ns) const;

  const PlanningRequest* request_;
  const Playable* playable_;
  Replay replay_;
  std::vector<int> rank_of_;  // [stage]
  std::vector<int64_t> forwards_, updates_,
      shares_;  // sums of the first layers; of updates empty: none before a step
  SimulationCosts costs_;
};

}  // namespace penstock::plan
