// One schedule of a request: its program, and what that says about memory.
#pragma once

#include "base/status.h"
#include "plan/planning/planner.h"

namespace penstock::plan {

struct Playable {
  ScheduleChoice choice;
  ComputeProgram program;
  PartitionRequest partition;  // with the program's in-flight counts
};

// Generates the program, by a search where the schedule asks for one. Errors: the family's; InvalidArgument: stages on two
// ranks each, which no contiguous split serves.
StatusOr<Playable> make_playable(const PlanningRequest& request, const ScheduleChoice& choice);

// What of a layer's update counts as part of each microbatch.
int64_t update_share_ns(const PlanningRequest& request, size_t layer);

}  // namespace penstock::plan
