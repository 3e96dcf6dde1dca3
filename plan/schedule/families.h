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

// InvalidArgument names the field: a shape beyond limits.h or that the family does not take; an unknown name,
// with the nearest one; a designed one that is not built yet.
StatusOr<ComputeProgram> generate(const ScheduleRequest& request);

// What this version makes of a name.
enum class Known : uint8_t { Built, Designed, Unknown };
Known known_schedule(const std::string& name);

// Names that generate() knows today, in the order in which help shows them.
std::vector<std::string> schedule_names();

}  // namespace penstock::plan
