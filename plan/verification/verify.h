// Proves a program before anybody runs it. A failure names rank, position, action and the broken rule.
//
// Rules: complete, order, ownership, deadlock (under buffered and under rendezvous sends), transfers, memory,
// numerics (ARCHITECTURE.md lists what each demands). Used by the coordinator before assignment, by the
// worker on arrival, and by `penstock verify`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/program.h"

namespace penstock::plan {

struct Violation {
  // "complete", "order", "ownership", "deadlock", "transfers", "memory", "numerics", "shape"
  std::string rule;
  RankIndex rank;       // unset when the rule is about the whole program
  int position = -1;    // index in the rank's list; -1 when it is about no single action
  std::string action;   // "2B3", or "" as above
  std::string message;  // what was expected and what was found

  std::string to_string() const;  // one line
};

struct Verdict {
  std::vector<Violation> violations;  // empty: valid; at most 20, first ones first
  bool bit_identical = false;         // reported, not demanded
  std::vector<int> high_water;        // H_s per stage, when complete; of a RankProgram, its own stages'
  bool valid() const { return violations.empty(); }
};

// Deadlock: the actions' dependencies have no circle. Lowering then finds slots with which rendezvous sends
// have none either, which the verdict on its result proves.
Verdict verify(const ComputeProgram& program);

// A lowered program of all ranks: as above plus transfers in order and identity per link, slots, leases,
// reduction after the last backward and before the step.
Verdict verify(const LoweredProgram& program);

// What one rank can check of its own program on arrival, without the others'. How many stages and
// microbatches there are elsewhere, and whether its transfers match, it cannot know; links carry digests for
// its neighbours to compare.
Verdict verify(const RankProgram& program);

}  // namespace penstock::plan
