#include "plan/render/timeline.h"

#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

TimedAction at(Ticks start, Ticks end, int stage, ActionKind kind, int microbatch) {
  return {single(StageIndex(stage), kind, MicrobatchIndex(microbatch)), start, end};
}

// 1f1b on two ranks with two microbatches; one unit of time is 5 ticks.
Simulation two_ranks() {
  using enum ActionKind;
  Simulation simulation;
  simulation.ranks.resize(2);
  simulation.ranks[0].actions = {at(0, 5, 0, Forward, 0), at(5, 10, 0, Forward, 1),
                                 at(20, 30, 0, Backward, 0), at(35, 45, 0, Backward, 1)};
  simulation.ranks[1].actions = {at(5, 10, 1, Forward, 0), at(10, 20, 1, Backward, 0),
                                 at(20, 25, 1, Forward, 1), at(25, 35, 1, Backward, 1)};
  return simulation;
}

TEST(TimelineText, with_room_every_cell_carries_its_action) {
  EXPECT_EQ(timeline_text(two_ranks()),
            "rank 0 |0F0|0F1|       |0B0    |   |0B1    |\n"
            "rank 1     |1F0|1B0    |1F1|1B1    |\n");
}

TEST(TimelineText, a_narrow_terminal_gets_letters_and_is_told_the_width_it_needs) {
  EXPECT_EQ(timeline_text(two_ranks(), {.width = 40}),
            "rank 0 FF..BB.BB\n"
            "rank 1 .FBBFBB..\n"
            "(a letter a unit of time; 44 columns would show every action by name)\n");
}

TEST(TimelineText, what_does_not_fit_is_cut_and_counted) {
  EXPECT_EQ(timeline_text(two_ranks(), {.width = 10, .ranks_max = 1}),
            "rank 0 FF..BB.B\n"
            "(cut after 8 of 9 units of time; -o json lists every action)\n"
            "(rank 1 left out)\n");
}

TEST(TimelineText, where_no_action_is_lost_a_letter_stands_for_several_units) {
  // A transfer of 1 tick makes the unit 1 tick: the drawing must not grow to five times its width for it.
  Simulation simulation = two_ranks();
  for (TimedAction& timed : simulation.ranks[1].actions) {
    timed.start += 1;
    timed.end += timed.end < 35 ? 1 : 0;
  }
  EXPECT_EQ(timeline_text(simulation, {.width = 18}),
            "rank 0 FF..BB.BB\n"
            "rank 1 .FBBFBB..\n"
            "(a letter 5 units of time; -o json lists every action)\n");
}

TEST(TimelineText, an_overlapped_pair_is_one_cell) {
  Simulation simulation = two_ranks();
  simulation.ranks[1].actions[1].action.overlapped =
      Work{StageIndex(0), ActionKind::Forward, MicrobatchIndex(1)};
  EXPECT_EQ(timeline_text(simulation, {.width = 20}).substr(0, 33), "rank 0 FF..BB.BB\nrank 1 .FOOFBB..");
}

TEST(TimelineText, letters_tell_the_stages_of_a_rank_apart) {
  using enum ActionKind;
  Simulation simulation;
  simulation.ranks.resize(2);
  simulation.ranks[0].actions = {at(0, 5, 0, Forward, 0), at(10, 15, 2, Forward, 0),
                                 at(30, 40, 2, Backward, 0), at(50, 60, 0, Backward, 0)};
  simulation.ranks[1].actions = {at(5, 10, 1, Forward, 0), at(15, 20, 3, Forward, 0),
                                 at(20, 30, 3, Backward, 0), at(40, 50, 1, Backward, 0)};
  EXPECT_EQ(timeline_text(simulation, {.width = 24}),
            "rank 0 F.f...bb..BB\n"
            "rank 1 .F.fbb..BB..\n"
            "(a letter a unit of time; 56 columns would show every action by name)\n"
            "(lower case: stages of a rank after its first)\n");
}

TEST(TimelineText, split_backwards_and_replicas_of_other_stages_have_letters_of_their_own) {
  // A rank of a bidirectional schedule: stage 0 of one direction and stage 3 of the other.
  using enum ActionKind;
  Simulation simulation;
  simulation.ranks.resize(1);
  simulation.ranks[0].actions = {at(0, 5, 0, Forward, 0),         at(5, 10, 3, Forward, 4),
                                 at(10, 15, 3, InputGradient, 4), at(15, 20, 3, WeightGradient, 4),
                                 at(20, 25, 0, InputGradient, 0), at(25, 30, 0, WeightGradient, 0)};
  EXPECT_EQ(timeline_text(simulation, {.width = 14}).substr(0, 14), "rank 0 FfiwIW\n");
  EXPECT_EQ(timeline_text(simulation), "rank 0 |0F0|3F4|3I4|3W4|0I0|0W0|\n");
}

TEST(TimelineText, nothing_to_draw_is_said) {
  EXPECT_EQ(timeline_text(Simulation{}), "(no action)\n");
}

}  // namespace
}  // namespace penstock::plan
