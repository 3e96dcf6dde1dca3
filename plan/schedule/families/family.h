// What a family is: a name, which stages_per_rank it takes, and a function from a shape to a compute program.
//
// A generator is called with a request whose bounds and stages_per_rank families.cc has checked.
#pragma once

#include "plan/schedule/families.h"
#include "plan/schedule/program.h"

namespace penstock::plan::families {

ComputeProgram naive(const ScheduleRequest& request);
ComputeProgram gpipe(const ScheduleRequest& request);
ComputeProgram one_f_one_b(const ScheduleRequest& request);
ComputeProgram interleaved_1f1b(const ScheduleRequest& request);

// A synchronous program of the requested shape on the loop placement, without actions yet.
ComputeProgram loop_program(const ScheduleRequest& request);

inline void append(std::vector<Action>& actions, int stage, ActionKind kind, int microbatch) {
  actions.push_back(single(StageIndex(stage), kind, MicrobatchIndex(microbatch)));
}

}  // namespace penstock::plan::families
