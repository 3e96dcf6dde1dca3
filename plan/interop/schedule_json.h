// The JSON of schedules: what `penstock schedule -o json` prints, what `penstock verify` and `file:` read
// back, and the verdict that `penstock verify -o json` prints.
//
//   {"schedule": "1f1b", "ranks": 2, "microbatches": 2, "stages_per_rank": 1, "placement": [[0], [1]],
//    "actions": [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]], "slots": 9, ...}
#pragma once

#include <string>

#include "base/status.h"
#include "plan/interop/schedule_report.h"
#include "plan/schedule/program.h"
#include "plan/verification/verify.h"

namespace penstock::plan {

// One object, indented, fields in the documented order, ended by a line end. Times are in the user's unit.
std::string schedule_to_json(const ScheduleReport& report);

// Reads such an object back. ranks, microbatches, stages_per_rank, placement and actions suffice; an entry of
// placement is a rank or a list of one or two; what else the object holds is ignored. The program is named
// "file:PATH". Which replica of a stage runs a microbatch is read off the actions.
//
// Checks types and bounds only (text 64 MiB, plan/schedule/limits.h); verify()
// proves the rest. InvalidArgument names the path and the place: "x.json: actions[3][7]: ...".
StatusOr<ComputeProgram> program_from_json(const std::string& text, const std::string& path);

// {"valid": ..., "bit_identical": ..., "payload_slots": [...], "violations": [{"rule", "rank", "position",
// "action", "message"}]}; rank and position are null where a rule is about no single action. An invalid program
// has no bit_identical and no payload_slots.
std::string verdict_to_json(const Verdict& verdict);

}  // namespace penstock::plan
