// The catalogue of schedule families: a name and a shape in, a compute program out. One file a family.
//
// zb-auto and v-auto are searched for given costs and memory, so that this front door does not know them:
// they belong to plan/generation.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/schedule/program.h"

namespace penstock::plan {

struct ScheduleRequest {
  std::string name;      // "1f1b", ...
  int ranks = 1;         // P >= 1
  int microbatches = 1;  // m >= 1, of one optimizer step
  // V; 0 is the family's own: 1, or 2 for the families that put two stages on a rank (V placement and loops).
  int stages_per_rank = 0;
  // Optimizer steps in the program. Synchronous families drain the pipeline in each; pipedream and
  // pipedream-2bw only once, at the end.
  int updates = 1;
  // 1f1b-v only: forwards that a rank may hold above the schedule's peak, which takes transfers off the
  // critical path. Empty: none; one entry: the same on all ranks; P entries: per rank. Each 0 to 64.
  std::vector<int> extra_warm_up_forwards = {};
};

// InvalidArgument names the field: a shape beyond limits.h or that the family does not take; an unknown name,
// with the nearest one; a searched one.
//
// Every m is taken. Where the published rule needs more microbatches, ComputeProgram::note says from how many
// on its figures hold.
StatusOr<ComputeProgram> generate(const ScheduleRequest& request);

// What generate() makes of a name. Designed: of the catalogue, and not from here.
enum class Known : uint8_t { Built, Designed, Unknown };
Known known_schedule(const std::string& name);

// "zb-auto" and "v-auto", which plan/generation searches for, and the stages_per_rank that each takes (one, and two).
std::vector<std::string> searched_schedule_names();
bool is_searched_schedule(const std::string& name);
int stages_of_searched(const std::string& name);

// Names that generate() knows today, in the order in which help shows them.
std::vector<std::string> schedule_names();

// Whether the schedule adds gradients up in another order by design, last in, first out or on two ranks: its losses are
// those of the others within a tolerance (README), not to the bit.
bool adds_in_an_order_of_its_own(const std::string& name);

}  // namespace penstock::plan
