// Runs a compute program over its links with rendezvous sends, without
// time, to find the receive slots it needs.
#pragma once

#include <vector>

#include "base/status.h"
#include "plan/schedule/internal/message_plan.h"

namespace penstock::plan::internal {

// Raises receive_slots in `links` (the plan's own) until the program runs to its end. One pass: a slot that
// is added when the run is stuck could have been posted earlier, which blocks nobody. Internal when the
// compute program itself has a cycle, with the ranks in it.
Status grow_receive_slots(const ComputeProgram& program, const MessagePlan& plan,
                          std::vector<PlannedLink>& links);

}  // namespace penstock::plan::internal
