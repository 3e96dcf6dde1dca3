// Plays one program under many costs, for the makespan alone: which action can follow which depends on no cost, so that the
// order is worked out once, and a play is one pass over whole numbers (about a tenth of simulate()'s time).
//
// A play also knows the chain of actions that set its pace, each waiting for the one before. Such a chain is there under any
// costs: a step never takes less than it. Whoever looks for costs that are faster need not play those that a known chain rules out.
//
// Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/schedule/program.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

class Replay {
 public:
  // FailedPrecondition, as of simulate(): the program stops. It need not outlive the replay.
  static StatusOr<Replay> of(const ComputeProgram& program);

  // For all calls below, until the next ones. InvalidArgument: costs of another shape, negative, more than can be summed up, or
  // with more of links than their latency.
  Status set_costs(const SimulationCosts& costs);

  // The makespan of simulate() with these costs.
  Ticks play();

  Ticks busy() const { return busy_; }  // of all ranks together, updates included
  int64_t actions() const { return static_cast<int64_t>(moments_.size()); }

  // How often each time is part of a chain.
  struct Chain {
    struct Part {
      int32_t time = 0;
      int32_t count = 0;
    };
    std::vector<Part> parts;
  };
  Chain slowest_chain() const;  // of the last play
  Ticks length_of(const Chain& chain) const {
    Ticks sum = 0;
    for (const Chain::Part& part : chain.parts) sum += times_[static_cast<size_t>(part.time)] * part.count;
    return sum;
  }

 private:
  // One action: it ends `time` after the action before it on its rank and, on its way for `passage`, its input.
  struct Moment {
    int32_t before = 0;    // of ends_
    int32_t producer = 0;  // of ends_
    int32_t time = 0;      // of times_
    int32_t passage = 0;   // of times_
  };
  class Builder;

  Replay() = default;
  Status check_shape(const SimulationCosts& costs) const;
  Status add_up();

  int ranks_ = 0;
  int stages_ = 0;
  int updates_ = 1;
  std::vector<std::pair<int32_t, int32_t>> pairs_;  // overlapped halves: their times
  std::vector<Moment> moments_;                     // in an order in which they can be played
  std::vector<int64_t> counts_;                     // [time]: how often it is there in a step
  std::vector<Ticks> times_;  // none, latency, updates of ranks, of every stage the four kinds, pairs
  std::vector<Ticks> ends_;   // of nothing, of the updates of ranks, of moments
  Ticks busy_ = 0;
};

}  // namespace penstock::plan
