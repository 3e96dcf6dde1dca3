// A measured step against the simulation of what it measured: how much longer it took, and where, and how many of its
// transfers came while their receivers computed.
//
// The simulation takes the mean cost of every stage and kind of work, and transfers that cost nothing. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "plan/measurement/measured_step.h"
#include "plan/schedule/program.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

struct ComparisonOptions {
  // A wait up to this long found its tensor there: asking costs so much, and sleeping more.
  int64_t noticed_wait_ns = 20'000;
};

// The hand-offs that are in one class of the simulation (HandOffs in simulate.h), and how they were measured: there before
// the consumer asked, or waited for. Those within a rank are never waited for.
struct OverlapAchieved {
  int64_t count = 0;
  int64_t hidden = 0;
  int64_t exposed = 0;
  int64_t exposed_ns = 0;  // waited for them in all
};

struct ComparedRank {
  int64_t busy_ns = 0;
  int64_t cpu_ns = 0;
  double bubble_measured = 0;  // of the makespan
  double bubble_simulated = 0;
};

struct Comparison {
  Simulation simulation;  // in nanoseconds
  int64_t measured_ns = 0;
  int64_t simulated_ns = 0;
  double ratio = 0;  // measured to simulated; 1 where both are 0
  std::vector<ComparedRank> ranks;
  OverlapAchieved local;
  OverlapAchieved hidden;
  OverlapAchieved exposed;
};

// InvalidArgument: the step is not of the program (check_measured), or a transfer between ranks has no wait.
StatusOr<Comparison> compare(const ComputeProgram& program, const MeasuredStep& step,
                             const ComparisonOptions& options = {});

}  // namespace penstock::plan
