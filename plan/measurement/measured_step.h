// One step of a program as its ranks ran it: when each piece of work began and ended. Plain data.
//
// All times are nanoseconds on one time line; how the clocks of several hosts are brought onto one is the business of who
// fills this in.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "plan/schedule/action.h"
#include "plan/schedule/dataflow.h"
#include "plan/schedule/program.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

struct MeasuredWork {
  Work work;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t cpu_ns = 0;  // of the thread that ran it
};

// The wait of a rank for a tensor of another one, right before the work that needs it. One that is short found its tensor
// there.
struct MeasuredWait {
  Passage passage;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct MeasuredRank {
  std::vector<MeasuredWork> works;  // in the order in which they began
  std::vector<MeasuredWait> waits;
};

struct MeasuredStep {
  std::vector<MeasuredRank> ranks;
};

// InvalidArgument names rank, place, expected and found unless every rank ran exactly what the program says, in its order,
// an overlapped pair as its two halves, and no work ended before it began.
Status check_measured(const ComputeProgram& program, const MeasuredStep& step);

// From the start of the first work to the end of the last, over all ranks; 0 without work.
int64_t makespan_ns(const MeasuredStep& step);

// What a simulation of the program would need to say: the mean of every stage and kind of work, in nanoseconds, wall time.
// Transfers cost nothing: what they cost is what a comparison shows.
SimulationCosts mean_costs(const ComputeProgram& program, const MeasuredStep& step);

// The measured works as a simulation's time line, for what draws those. Only its ranks' actions and busy times are set.
Simulation as_timeline(const MeasuredStep& step);

}  // namespace penstock::plan
