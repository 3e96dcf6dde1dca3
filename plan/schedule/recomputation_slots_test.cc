#include "plan/schedule/recomputation_slots.h"

#include <gtest/gtest.h>

#include "plan/schedule/families.h"
#include "plan/schedule/payload_slots.h"

namespace penstock::plan {
namespace {

std::vector<int> slots_of(const ScheduleRequest& request) {
  std::vector<int> slots;
  const LoweredProgram program = lower(generate(request).value()).value();
  for (const RankProgram& rank : program.ranks) {
    slots.push_back(recomputation_slots(rank, rank.buffers.front().stage));
  }
  return slots;
}

TEST(RecomputationSlots, zero_bubble_schedules_defer_weight_gradients) {
  // By hand, from the orders that the paper prints: the last rank holds back as many W as it has forwards in flight.
  EXPECT_EQ(slots_of({.name = "zb-h1", .ranks = 4, .microbatches = 8}), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(slots_of({.name = "zb-h2", .ranks = 4, .microbatches = 8}), (std::vector<int>{1, 3, 5, 7}));
}

TEST(RecomputationSlots, whole_backwards_take_none) {
  EXPECT_EQ(slots_of({.name = "1f1b", .ranks = 3, .microbatches = 6}), (std::vector<int>{0, 0, 0}));
}

TEST(RecomputationSlots, a_whole_backward_among_halves_takes_none_for_itself) {
  // 0I0 0B1 0W0: one microbatch is between its halves, while a payload is held for both.
  RankProgram program;
  using enum ActionKind;
  for (const auto& [kind, microbatch] : std::vector<std::pair<ActionKind, int>>{
           {Forward, 0}, {Forward, 1}, {InputGradient, 0}, {Backward, 1}, {WeightGradient, 0}}) {
    program.instructions.emplace_back().work = {StageIndex(0), kind, MicrobatchIndex(microbatch)};
  }
  EXPECT_EQ(recomputation_slots(program, StageIndex(0)), 1);
  EXPECT_EQ(payload_high_water(program, StageIndex(0)).recomputed_inputs, 2);
  EXPECT_EQ(recomputation_slots(program, StageIndex(1)), 0);
}

}  // namespace
}  // namespace penstock::plan
