#include "plan/schedule/payload_slots.h"

#include <gtest/gtest.h>

#include "plan/schedule/families.h"
#include "plan/schedule/forward_only.h"

namespace penstock::plan {

static void PrintTo(const PayloadHighWater& high, std::ostream* out) {
  *out << "{" << high.inputs << ", " << high.recomputed_inputs << ", " << high.output_gradients << "}";
}

namespace {

// Of every stage of a program with one stage a rank.
std::vector<PayloadHighWater> high_water_of(const ComputeProgram& program) {
  std::vector<PayloadHighWater> of_stages;
  const LoweredProgram lowered = lower(program).value();
  for (const RankProgram& rank : lowered.ranks) {
    of_stages.push_back(payload_high_water(rank, rank.buffers.front().stage));
  }
  return of_stages;
}
std::vector<PayloadHighWater> high_water_of(const ScheduleRequest& request) {
  return high_water_of(generate(request).value());
}

TEST(PayloadSlots, inputs_are_held_as_long_as_activations_in_every_schedule) {
  for (const std::string& name : schedule_names()) {
    for (const int ranks : {1, 2, 4}) {
      for (const int microbatches : {1, 3, 8, 12}) {
        const StatusOr<ComputeProgram> program =
            generate({.name = name, .ranks = ranks, .microbatches = microbatches, .updates = 2});
        if (!program.ok()) continue;  // dualpipe takes no single rank
        const LoweredProgram lowered = lower(*program).value();
        for (const RankProgram& rank : lowered.ranks) {
          for (const StageBuffers& buffers : rank.buffers) {
            const PayloadHighWater high = payload_high_water(rank, buffers.stage);
            EXPECT_EQ(high.inputs, buffers.activation_slots)
                << name << " P=" << ranks << " m=" << microbatches << " stage " << buffers.stage.value;
            EXPECT_LE(high.recomputed_inputs, high.inputs);
            EXPECT_LE(high.output_gradients, high.recomputed_inputs);
            EXPECT_EQ(high.output_gradients > 0, buffers.activation_slots > 0);
          }
        }
      }
    }
  }
}

// By hand, from the orders that the papers print (families/published_orders.inc).
TEST(PayloadSlots, whole_backwards_hold_what_comes_to_them_while_they_run) {
  EXPECT_EQ(high_water_of({.name = "1f1b", .ranks = 4, .microbatches = 8}),
            (std::vector<PayloadHighWater>{{4, 1, 1}, {3, 1, 1}, {2, 1, 1}, {1, 1, 1}}));
  EXPECT_EQ(high_water_of({.name = "gpipe", .ranks = 2, .microbatches = 5}),
            (std::vector<PayloadHighWater>{{5, 1, 1}, {5, 1, 1}}));
}

TEST(PayloadSlots, zb_h1_defers_as_many_weight_gradients_as_there_are_ranks_before) {
  EXPECT_EQ(high_water_of({.name = "zb-h1", .ranks = 4, .microbatches = 8}),
            (std::vector<PayloadHighWater>{{4, 1, 1}, {4, 2, 2}, {4, 3, 3}, {4, 4, 4}}));
}

TEST(PayloadSlots, zb_h2_defers_twice_as_many) {
  EXPECT_EQ(high_water_of({.name = "zb-h2", .ranks = 4, .microbatches = 8}),
            (std::vector<PayloadHighWater>{{7, 1, 1}, {7, 3, 3}, {7, 5, 5}, {7, 7, 7}}));
}

ComputeProgram on_one_rank(std::vector<Action> actions, int microbatches) {
  ComputeProgram program;
  program.ranks = 1;
  program.microbatches = microbatches;
  program.placement = {{RankIndex(0)}};
  program.actions = {std::move(actions)};
  return program;
}

Action action(const char* text) {
  return parse_action(text).value();
}

TEST(PayloadSlots, forward_of_a_recomputed_block_stands_beside_the_backwards_that_have_begun) {
  // The second forward runs while the first microbatch waits for its W, and no other backward ever does.
  const ComputeProgram program = on_one_rank(
      {action("0F0"), action("0I0"), action("0F1"), action("0W0"), action("0I1"), action("0W1")}, 2);
  EXPECT_EQ(high_water_of(program), (std::vector<PayloadHighWater>{{2, 2, 1}}));
}

TEST(PayloadSlots, pair_runs_one_half_after_the_other) {
  const ComputeProgram backward_first = on_one_rank({action("0F0"), action("O(0B0;0F1)"), action("0B1")}, 2);
  EXPECT_EQ(high_water_of(backward_first), (std::vector<PayloadHighWater>{{1, 1, 1}}));
  const ComputeProgram forward_first = on_one_rank({action("0F0"), action("O(0F1;0B0)"), action("0B1")}, 2);
  EXPECT_EQ(high_water_of(forward_first), (std::vector<PayloadHighWater>{{2, 1, 1}}));
}

TEST(PayloadSlots, evaluation_holds_inputs_while_a_forward_runs) {
  const ComputeProgram training = generate({.name = "1f1b", .ranks = 2, .microbatches = 4}).value();
  EXPECT_EQ(high_water_of(forward_only(training, 3)), (std::vector<PayloadHighWater>{{1, 1, 0}, {1, 1, 0}}));
}

TEST(PayloadSlots, stage_of_another_rank_takes_none) {
  const LoweredProgram program = lower(*generate({.name = "1f1b", .ranks = 2, .microbatches = 4})).value();
  EXPECT_EQ(payload_high_water(program.ranks[0], StageIndex(1)), PayloadHighWater{});
}

}  // namespace
}  // namespace penstock::plan
