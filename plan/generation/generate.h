// The front door to every schedule of the catalogue: a name and a shape in, a compute program out. Closed
// forms come from plan/schedule/families; zb-auto and v-auto are searched for here, from measured costs and
// a memory limit, and come with a report that says how far from optimal they can be at most.
//
//   zb-auto  one stage a rank (Qi et al., Zero Bubble Pipeline Parallelism: limits P and 2P are ZB-1p and 2p)
//   v-auto   two stages a rank, V placement (Qi et al., Pipeline Parallelism with Controllable Memory)
//
// A message takes its link's latency and the time that it holds the link; that messages of one link may
// have to wait for each other is left to simulate(), and the bound holds with it too.
//
// Both minimise the longest stage span (from the start of a rank's first forward to the end of its last
// weight gradient, over the ranks), then the makespan. Both keep every kind of action of a stage in
// microbatch order, so that their results accumulate gradients like every other schedule.
//
// The same request gives the same program as long as `keep_going` gives the same answers: a budget of
// evaluations is repeatable on any machine, a clock is not. Pure; one thread; keep_going is called on the
// caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/schedule/families.h"
#include "plan/schedule/program.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

// What one microbatch adds to its rank's memory when a stage's action has run, in units of the caller's
// choice. They sum to 0, a forward takes something, and nothing is negative in between. The default holds
// one unit until the weight gradient; the Zero Bubble paper's M_B = 2 M_W is {2, -1, -1}.
struct MemoryDeltas {
  int64_t forward = 1;
  int64_t input_gradient = 0;
  int64_t weight_gradient = -1;
};

struct MemoryLimits {
  // One per stage, or one for all of them; empty means the default of MemoryDeltas.
  std::vector<MemoryDeltas> deltas;
  // One per rank, or one for all of them, in the same units; empty means what P forwards of a whole rank
  // take (the memory of 1F1B): P of its stage for zb-auto, P of each of its two stages for v-auto.
  std::vector<int64_t> limits;
};

// How long to search. The first answer is made in any case; it takes time proportional to the program.
struct SearchLimits {
  uint64_t seed = 1;
  int64_t evaluations_max = 20'000;  // candidates tried; INT64_MAX leaves it to keep_going
  // Asked before every candidate and between passes over one, until it says no. Empty means yes.
  std::function<bool()> keep_going;
};

struct GenerationRequest {
  ScheduleRequest schedule;
  std::optional<SimulationCosts> costs;  // one per stage; none means F = I = W = 1 without latency
  MemoryLimits memory;
  SearchLimits search;
};

struct SearchReport {
  Ticks max_stage_span = 0;  // of the program when every action starts as early as it can
  Ticks makespan = 0;
  Ticks bound = 0;                     // no program within the limits has a shorter max_stage_span
  std::string bound_reason;            // what the bound is made of, in words
  bool optimal = false;                // max_stage_span == bound
  double gap_percent = 0;              // 100 (max_stage_span - bound) / bound
  int64_t evaluations = 0;             // candidates that were timed
  std::vector<int64_t> memory_peaks;   // per rank, in the units of the deltas, counted in program order
  std::vector<int64_t> memory_limits;  // per rank, as used
};

struct GeneratedSchedule {
  ComputeProgram program;
  std::optional<SearchReport> search;  // of zb-auto and v-auto
};

// InvalidArgument names the field: as generate(ScheduleRequest); costs, deltas or limits of the wrong
// number or beyond range; a limit that not even one microbatch at a time fits in, with the smallest that
// works. Costs and limits of a closed form are not looked at.
StatusOr<GeneratedSchedule> generate(const GenerationRequest& request);

// Every name that generate() knows, in the order in which help shows them.
std::vector<std::string> all_schedule_names();

}  // namespace penstock::plan
