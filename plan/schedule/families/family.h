// What a family is: a name, the stages that it puts on a rank, and a function from a shape to the compute
// program of one optimizer step (families.cc repeats it for several). The asynchronous families write all
// steps themselves.
//
// A generator is called with a request whose fields families.cc has checked and filled in.
#pragma once

#include <algorithm>

#include "plan/schedule/families.h"
#include "plan/schedule/program.h"

namespace penstock::plan::families {

ComputeProgram naive(const ScheduleRequest& request);
ComputeProgram gpipe(const ScheduleRequest& request);
ComputeProgram gpipe_lifo(const ScheduleRequest& request);
ComputeProgram one_f_one_b(const ScheduleRequest& request);
ComputeProgram interleaved_1f1b(const ScheduleRequest& request);
ComputeProgram looped_bfs(const ScheduleRequest& request);
ComputeProgram looped_bfs_lifo(const ScheduleRequest& request);
ComputeProgram one_f_one_b_v(const ScheduleRequest& request);
ComputeProgram zb_h1(const ScheduleRequest& request);
ComputeProgram zb_h2(const ScheduleRequest& request);
ComputeProgram zb_v(const ScheduleRequest& request);
ComputeProgram v_half(const ScheduleRequest& request);
ComputeProgram v_min(const ScheduleRequest& request);
ComputeProgram dualpipe(const ScheduleRequest& request);
ComputeProgram dualpipe_v(const ScheduleRequest& request);
ComputeProgram chimera(const ScheduleRequest& request);
ComputeProgram pipedream(const ScheduleRequest& request);
ComputeProgram pipedream_2bw(const ScheduleRequest& request);

// Synchronous programs of the requested shape without actions yet: on the loop placement, on the V placement,
// and with one pipeline in each direction (stage s on ranks s and P-1-s; the first half of the microbatches,
// rounded up, runs from rank 0 on).
ComputeProgram loop_program(const ScheduleRequest& request);
ComputeProgram v_program(const ScheduleRequest& request);
ComputeProgram two_way_program(const ScheduleRequest& request);

inline void append(std::vector<Action>& actions, int stage, ActionKind kind, int microbatch) {
  actions.push_back(single(StageIndex(stage), kind, MicrobatchIndex(microbatch)));
}

// 1F1B of one stage: `warm_up` forwards ahead, then one forward and one backward in turn, then the backwards
// that are left.
inline void append_1f1b(std::vector<Action>& actions, int stage, int warm_up, int microbatches) {
  const int ahead = std::min(warm_up, microbatches);
  for (int microbatch = 0; microbatch < ahead; ++microbatch)
    append(actions, stage, ActionKind::Forward, microbatch);
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    if (microbatch + ahead < microbatches) append(actions, stage, ActionKind::Forward, microbatch + ahead);
    append(actions, stage, ActionKind::Backward, microbatch);
  }
}

}  // namespace penstock::plan::families
