// Proves a program before anybody runs it. A failure names rank, position, action and the rule that is broken.
//
// Rules: complete, order, ownership, deadlock (under buffered and under rendezvous sends), transfers, memory,
// numerics (ARCHITECTURE.md lists what each demands). Used by the coordinator before assignment, by the worker on
// arrival, and by `penstock verify`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/program.h"

namespace penstock::plan {

struct Violation {
  std::string rule;      // "complete", "order", "ownership", "deadlock", "transfers", "memory", "numerics", "shape"
  RankIndex rank;        // unset when the rule is about the whole program
  int position = -1;     // index in the rank's list; -1 when it is about no single action
  std::string action;    // "2B3", or "" as above
  std::string message;   // what was expected and what was found

  std::string to_string() const;  // one line
};

struct Verdict {
  std::vector<Violation> violations;  // empty: valid; at most 20, first ones first
  bool bit_identical = false;         // reported, not demanded
  std::vector<int> high_water;        // H_s per stage, when complete
  bool valid() const { return violations.empty(); }
};

Verdict verify(const ComputeProgram& program);

// A lowered program of all ranks: as above plus transfers in order and identity per link, slots, leases,
// reduction after the last backward and before the step.
Verdict verify(const LoweredProgram& program);

// What one rank can check of its own program on arrival, without the others'.
Verdict verify(const RankProgram& program);

}  // namespace penstock::plan
