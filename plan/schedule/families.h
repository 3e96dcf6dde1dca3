// The catalogue of schedule families: a name and a shape in, a compute program out. One file a family.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/schedule/program.h"

namespace penstock::plan {

struct ScheduleRequest {
  std::string name;         // "1f1b", ...
  int ranks = 1;            // P >= 1
  int microbatches = 1;     // m >= 1
  int stages_per_rank = 1;  // V >= 1
};

// Upper bounds on a request, so that no input makes the generator run for ever: ranks and microbatches
// 65,536, stages per rank 1,024, and 2^24 actions in all. InvalidArgument names the field; an unknown name
// lists the nearest one; a known one that is not built yet says so.
StatusOr<ComputeProgram> generate(const ScheduleRequest& request);

// Names that generate() knows today, in the order in which help shows them.
std::vector<std::string> schedule_names();

}  // namespace penstock::plan
