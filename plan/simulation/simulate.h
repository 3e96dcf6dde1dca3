// Plays a compute program against costs and returns when everything happens, exactly.
//
// Time is integer ticks. costs.h turns decimal inputs into ticks and prints ticks back in the user's unit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/schedule/program.h"

namespace penstock::plan {

using Ticks = int64_t;

struct StageCosts {
  Ticks forward = 1;
  Ticks input_gradient = 1;
  Ticks weight_gradient = 1;  // a fused backward costs input_gradient + weight_gradient
};

struct SimulationCosts {
  std::vector<StageCosts> stages;  // one per stage
  Ticks overlapped_pair = 0;       // 0: the sum of its halves
  Ticks latency = 0;               // added to every transfer between two ranks
};

struct TimedAction {
  Action action;
  Ticks start = 0;
  Ticks end = 0;
};

struct RankTimeline {
  std::vector<TimedAction> actions;
  Ticks busy = 0;
  Ticks idle_warm_up = 0;     // before the first action
  Ticks idle_cool_down = 0;   // after the last action, until the makespan
  Ticks idle_dependency = 0;  // waits for a producer that had not ended
  Ticks idle_transfer = 0;    // waits for a message on its way
};

// Hand-offs between consecutive stages, both flows. local: both ends on one rank. hidden: another action of
// the receiver starts between the producer's end and the consumer's start (producer's end included). exposed:
// none does.
struct HandOffs {
  int64_t local = 0;
  int64_t hidden = 0;
  int64_t exposed = 0;
};

enum class Timeline : uint8_t {
  Earliest,  // every action starts as soon as its order and dependencies allow
  Aligned,   // OLMo's table: r leading empties, 2(P-1-r) empties after the warm-up, one before each of the
             // first P-1-r drain backwards; loop placement, F=1, B=2 and m >= max(P, 2P-3) only
};

struct Simulation {
  Timeline timeline = Timeline::Earliest;
  std::vector<RankTimeline> ranks;
  Ticks makespan = 0;            // end of the last action minus start of the first, over all ranks
  Ticks max_stage_span = 0;      // max over ranks of (end of last - start of first)
  Ticks idle_total = 0;          // ranks x makespan - busy
  double bubble_fraction = 0;    // idle_total / (ranks x makespan)
  double stage_bubble_rate = 0;  // (max_stage_span - busy time of one rank) / max_stage_span
  HandOffs handoffs;
  int64_t transfers_forward = 0;  // messages between ranks
  int64_t transfers_backward = 0;
};

// The program must be valid (verify). FailedPrecondition when `Aligned` does not apply, with the reason.
StatusOr<Simulation> simulate(const ComputeProgram& program, const SimulationCosts& costs,
                              Timeline timeline = Timeline::Earliest);

SimulationCosts uniform_costs(int stages, const StageCosts& costs);

}  // namespace penstock::plan
