// Plays a program against costs and returns when everything happens, exactly. Time is integer ticks; costs.h
// turns decimal inputs into ticks and prints ticks back in the user's unit. memory_timeline.h says what the
// ranks hold meanwhile.
//
// Papers give one name to different figures. Here:
//   makespan           end of the last action minus start of the first, over all ranks, updates before it included
//   max_stage_span     the longest of one rank: end of its last action minus start of its first; the "span" of
//                      the zero-bubble papers. ZB-H2 shortens it and not the makespan
//   bubble_fraction    idle / total, total being ranks x makespan: (P-1)/(m+P-1) for 1F1B
//   bubble_to_busy     idle / useful: (P-1)/m for 1F1B
//   stage_bubble_rate  (span - work of one rank) / span, over the longest span
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/program.h"

namespace penstock::plan {

using Ticks = int64_t;

struct StageCosts {
  Ticks forward = 1;
  Ticks input_gradient = 1;
  Ticks weight_gradient = 1;
  std::optional<Ticks> backward = std::nullopt;  // fused; without: input_gradient + weight_gradient

  Ticks fused_backward() const { return backward.value_or(input_gradient + weight_gradient); }
};

// `bytes` pass in every `ticks`. Without bytes: any number in no time.
struct Bandwidth {
  int64_t bytes = 0;
  Ticks ticks = 1;
};

// A message holds its link for ticks_per_message and for its bytes, rounded up to a tick; messages of a link
// follow one another. It has arrived `latency` after it left the link.
struct LinkCosts {
  Ticks latency = 0;
  Ticks ticks_per_message = 0;
  Bandwidth bandwidth;
};

struct LinkOverride {
  RankIndex source;
  RankIndex target;
  LinkCosts costs;
};

// A two-sided transfer is a kernel on both devices. From the earlier post of the pair until the later one (the
// match), it waits on the device that was first and holds `blocks_per_wait` of the device's `blocks` (thread
// blocks that run at once); the compute beside it runs with the rest, at least one. So w waits make it
// blocks / (blocks - w x blocks_per_wait) times as long. A one-sided put waits nowhere: blocks 0.
struct ResidentWaits {
  int32_t blocks = 0;
  int32_t blocks_per_wait = 0;
};

struct SimulationCosts {
  std::vector<StageCosts> stages;  // one per stage
  // [rank]: of the optimizer, for the step before. All ranks begin it at 0, when the norm of all gradients is known, and their
  // first action after it: the makespan, from 0 on, is then the time from step to step. Empty: none.
  std::vector<Ticks> updates;
  Ticks overlapped_pair = 0;  // 0: the sum of its halves

  // Of every link between two ranks that `links` does not name.
  Ticks latency = 0;
  Ticks ticks_per_message = 0;
  Bandwidth bandwidth;
  std::vector<LinkOverride> links;
  std::vector<int64_t> message_bytes;  // [s]: of a tensor between stages s and s+1, both ways; or none: 0

  ResidentWaits waits;  // of lowered programs: the others post nothing
};

struct TimedAction {
  Action action;
  Ticks start = 0;
  Ticks end = 0;
};

struct RankTimeline {
  std::vector<TimedAction> actions;
  Ticks busy = 0;
  Ticks update = 0;           // of busy: the optimizer's, before the first action
  Ticks slowed = 0;           // of busy: what resident waits added
  Ticks idle_warm_up = 0;     // before the first action
  Ticks idle_cool_down = 0;   // after the last action, until the makespan
  Ticks idle_dependency = 0;  // waits for a producer that had not ended
  Ticks idle_transfer = 0;    // waits for a message on its way, or for a slot of its link
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
  Ticks makespan = 0;
  Ticks max_stage_span = 0;
  Ticks idle_total = 0;  // ranks x makespan - busy
  double bubble_fraction = 0;
  double bubble_to_busy = 0;
  double stage_bubble_rate = 0;
  HandOffs handoffs;
  int64_t transfers_forward = 0;  // messages between ranks
  int64_t transfers_backward = 0;
};

// The program must be valid (verify). Every receive is ready and no slot is ever missing. FailedPrecondition
// when `Aligned` does not apply, with the reason. InvalidArgument: costs that are negative, of another shape,
// or so large that times could overflow; updates of a program of several steps.
StatusOr<Simulation> simulate(const ComputeProgram& program, const SimulationCosts& costs,
                              Timeline timeline = Timeline::Earliest);

// As the ranks' interpreters would run it: a message passes when it is sent and its receive is posted, a send
// slot is free again when its message has left, and resident waits slow the compute beside them. Errors as
// above; FailedPrecondition also when the ranks wait for each other. Costs have no updates: these are instructions.
StatusOr<Simulation> simulate(const LoweredProgram& program, const SimulationCosts& costs);

// The longest time of anything that simulate() takes for this program: sums of more could overflow.
Ticks longest_time(const ComputeProgram& program);

SimulationCosts uniform_costs(int stages, const StageCosts& costs);

}  // namespace penstock::plan
