// A simulated schedule as a trace that ui.perfetto.dev and chrome://tracing open (the JSON trace format).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/schedule/program.h"
#include "plan/simulation/costs.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

struct TraceStyle {
  TickScale scale = {};  // one unit of cost is shown as one millisecond
  // By rank, or one for all; empty: the counters count forwards held, not bytes.
  std::vector<int64_t> bytes_per_activation = {};
  std::vector<int64_t> static_bytes = {};  // added to every rank's bytes
  int64_t actions_max = 2'000'000;
};

// A track a rank with a slice an action, named as in "2B3"; a flow for every transfer between ranks, from the
// end of its producer to the start of its consumer; a counter a rank of the forwards that it holds, or of
// bytes where one's size is said.
//
// InvalidArgument for more than actions_max actions: the viewer would not open it.
StatusOr<std::string> timeline_trace(const ComputeProgram& program, const Simulation& simulation,
                                     const TraceStyle& style = {});

// A track that every rank has.
struct TraceRow {
  std::string name;  // "measured"
  const Simulation* simulation = nullptr;
};

// The same with several tracks a rank, each on a time line of its own that begins with its first action; the counters are
// those of the first.
StatusOr<std::string> timelines_trace(const ComputeProgram& program, const std::vector<TraceRow>& rows,
                                      const TraceStyle& style = {});

}  // namespace penstock::plan
