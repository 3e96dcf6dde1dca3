// V-shaped programs that repeat one block: the slots of one microbatch on every rank, stamped m times, a
// period apart.
//
// On rank r the forward of its first stage starts `down` slots after that of rank r-1, the second stage's
// forward one slot before that of rank r-1 (it comes back), the second stage's input gradient `down` slots
// after, and the first stage's one before. `down` may change once on the way. Modulo the period the four
// never meet on a rank; the slots that are left run weight gradients, the oldest first. Memory is
// proportional to how long a block takes, over the period.
#pragma once

#include <optional>
#include <vector>

#include "plan/generation/internal/problem.h"

namespace penstock::plan::internal {

struct BuildingBlock {
  // [rank]: the slot in which the first microbatch runs forward 1 and 2, input gradient 2 and 1.
  struct Slots {
    int forward_first = 0;
    int forward_second = 0;
    int gradient_second = 0;
    int gradient_first = 0;
  };
  int period = 6;
  std::vector<Slots> slots;

  int depth() const { return slots.front().gradient_first; }
};

// Blocks of a period that take no more than the limits allow on average: those that end soonest, in that
// order.
std::vector<BuildingBlock> building_blocks(const Problem& problem, int period, int count_max);

// The block stamped m times. Nothing when a rank then exceeds its limit.
std::optional<Orders> stamped(const Problem& problem, const BuildingBlock& block);

}  // namespace penstock::plan::internal
