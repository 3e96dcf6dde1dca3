// What a job's measurements say about its split, with the words for its events: the decision behind `rebalance: propose | apply`.
//
// plan/rebalancing fits, splits, predicts and decides; here its verdict meets what the rebalancer has done to the job before.
// Pure; milliseconds for a small job, up to a second for a big one: on the planner's thread.
#pragma once

#include "coordinator/core/assignment/assignment.h"
#include "coordinator/core/jobs/rebalancing.h"

namespace penstock::coordinator {

// A move that is not judged yet is judged first (plan/rebalancing/judge_move.h). Every trouble is a Stay that says why; a job whose
// layers cannot be moved at all, or of which less is kept than would tell splits apart, is Fixed. What is moved to, or only
// proposed, is verified and within the memory budget. `spec` and `plan` are there where the job's file says apply.
SplitAnswer consider_split(const SplitQuestion& question);

// With a note of what `rebalance:` cannot do for this job, said when it is submitted.
CheckedJob with_rebalancing_notes(CheckedJob checked);

}  // namespace penstock::coordinator
