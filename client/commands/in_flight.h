// How many microbatches each stage of a schedule has in flight, which is what its memory is counted by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/partition/partition.h"

namespace penstock::client {

struct InFlightQuestion {
  std::string schedule;  // "": 1f1b, and with more stages a rank interleaved-1f1b or 1f1b-v
  int ranks = 1;
  int stages_per_rank = 1;
  std::optional<plan::StagePlacement> placement;  // the schedule's where it is not said
  std::optional<int> microbatches;                // needed where the counts depend on it
};

struct InFlight {
  std::vector<int> counts;  // H_s of every stage
  plan::StagePlacement placement = plan::StagePlacement::Loop;
};

// InvalidArgument names the option.
StatusOr<InFlight> in_flight_of(const InFlightQuestion& question);

}  // namespace penstock::client
