// Schedules on the V placement that start from a building block: the slots in which every rank runs one
// microbatch, repeated for every microbatch six slots later (Qi, Wan, Amar: Pipeline Parallelism with
// Controllable Memory, 2024). The steps from a block to a schedule:
//
//   repeat_block            the block, once for every microbatch
//   place_weight_gradients  where backwards are split: W in the slots that are free
//   pull_left               warm-up and drain closed up, no rank holding more than it may
//   actions_in_order        the ranks' lists
//
// Slots count from 0 and are of no particular length.
#pragma once

#include <vector>

#include "plan/schedule/program.h"

namespace penstock::plan::families {

// First slots of one microbatch on one rank, whose stages are lo = r and hi = 2P-1-r.
struct BlockOfRank {
  int forward_low = 0;
  int forward_high = 0;
  int backward_high = 0;
  int backward_low = 0;
};

struct BuildingBlock {
  std::vector<BlockOfRank> of_rank;
  bool splits_backward = false;  // then backwards are I and take one slot, fused ones take two
};

constexpr int kBlockPeriod = 6;  // two forwards and two backwards of two slots each, W counted in

struct TimedWork {
  Work work;
  int64_t start = 0;
  int slots = 1;

  int64_t end() const { return start + slots; }
};

using Timetable = std::vector<std::vector<TimedWork>>;  // [rank], ascending, without overlaps

// No two copies of a rank's block may meet modulo kBlockPeriod.
Timetable repeat_block(const BuildingBlock& block, int microbatches);

// Puts the W of every I into the first free slot behind it, oldest first.
void place_weight_gradients(Timetable& timetable);

// Most forwards that each rank holds at once, until B or W; until I where there is no W yet.
std::vector<int> most_held(const Timetable& timetable);

// Visits every rank's work in order and moves each piece to the earliest slots that its inputs and the work
// placed before it allow; a forward no further than the rank holds fewer than `may_hold` at every slot that it
// passes. Nothing moves to the right. Cost: for each piece, the pieces that it passes.
Timetable pull_left(const Timetable& timetable, const std::vector<int>& may_hold);

std::vector<std::vector<Action>> actions_in_order(const Timetable& timetable);

}  // namespace penstock::plan::families
