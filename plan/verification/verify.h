// Proves a program before anybody runs it. A failure names rank, position, action and the broken rule.
//
// Rules: complete, order, ownership, deadlock (by SendSemantics), transfers, memory,
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

// Under which behaviour of transfers a program runs to its end. Each holds where a later one does.
struct SendSemantics {
  bool buffered = false;    // a send ends by itself
  bool rendezvous = false;  // a send ends when its receive is posted, whatever else the two ranks have posted
  // All transfers of a rank sit on one queue, sends and receives in the order in which they are posted; the
  // first one of a queue passes when it is also the first at its other end. As on one stream of a GPU.
  bool in_order_queue = false;
};

struct VerifyOptions {
  bool in_order_queue = false;  // demand it; else only told. Buffered and rendezvous are always demanded
};

struct Verdict {
  std::vector<Violation> violations;  // empty: valid; at most 20, first ones first
  // Of a compute program: what a lowering of it can reach. Of a RankProgram nothing, which it cannot know.
  SendSemantics holds;
  bool bit_identical = false;   // reported, not demanded
  std::vector<int> high_water;  // H_s per stage, when complete; of a RankProgram, its own stages'
  bool valid() const { return violations.empty(); }
};

// Deadlock: the actions' dependencies have no circle. Lowering then finds slots with which rendezvous sends
// have none either, and on demand an order of posts for in-order queues, which the verdict on its result
// proves.
Verdict verify(const ComputeProgram& program);

// A lowered program of all ranks: as above plus transfers in order and identity per link, slots, leases,
// reduction after the last backward and before the step; where steps are post-validated (post_validation.h) all
// ranks validate, each after the next one and before it adds to gradients, and both ends of a link know the
// messages sent before.
Verdict verify(const LoweredProgram& program, const VerifyOptions& options = {});

// What one rank can check of its own program on arrival, without the others'. How many stages and
// microbatches there are elsewhere, and whether its transfers match, it cannot know; links carry digests for
// its neighbours to compare.
Verdict verify(const RankProgram& program);

}  // namespace penstock::plan
