#include "plan/simulation/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/simulation/costs.h"
#include "plan/simulation/testing/numbers.h"
#include "plan/verification/verify.h"

namespace penstock::plan {
namespace {

struct ExpectedRow {
  const char* schedule;
  int ranks;
  int microbatches;
  int stages_per_rank;
  const char* costs;
  const char* latency;
  const char* makespan;
  const char* max_stage_span;
  const char* idle_total;
  double bubble_fraction;
  double stage_bubble_rate;
  const char* peaks;
  int64_t transfers_forward;
  int64_t transfers_backward;
  bool exact;
};

constexpr ExpectedRow kExpectedRows[] = {
#include "plan/simulation/expected_rows.inc"
};

ComputeProgram program_of(const std::string& name, int ranks, int microbatches, int stages_per_rank) {
  StatusOr<ComputeProgram> program = generate({name, ranks, microbatches, stages_per_rank});
  if (!program.ok()) throw std::runtime_error(message(program.status()));
  return *std::move(program);
}

Simulation play(const ComputeProgram& program, const SimulationCosts& costs,
                Timeline timeline = Timeline::Earliest) {
  StatusOr<Simulation> simulation = simulate(program, costs, timeline);
  if (!simulation.ok()) throw std::runtime_error(message(simulation.status()));
  return *std::move(simulation);
}

constexpr StageCosts kUnit{.forward = 1, .input_gradient = 1, .weight_gradient = 1};

void expect_row(const ExpectedRow& row) {
  SCOPED_TRACE(fmt::format("{} P={} m={} V={} costs {} latency {}", row.schedule, row.ranks, row.microbatches,
                           row.stages_per_rank, row.costs, row.latency));
  const ComputeProgram program = program_of(row.schedule, row.ranks, row.microbatches, row.stages_per_rank);
  const StatusOr<UniformCosts> costs = parse_uniform_costs(row.costs, row.latency);
  ASSERT_TRUE(costs.ok()) << costs.status();
  const Simulation played = play(program, costs->for_stages(program.stages()));
  const std::vector<int> peaks = peak_activations_per_rank(program, true);

  EXPECT_EQ(played.transfers_forward, row.transfers_forward);
  EXPECT_EQ(played.transfers_backward, row.transfers_backward);
  if (!row.exact) {
    EXPECT_LE(costs->scale.to_number(played.max_stage_span), std::stod(row.max_stage_span));
    const std::vector<int> most = numbers(row.peaks);
    ASSERT_EQ(peaks.size(), most.size());
    for (size_t rank = 0; rank < peaks.size(); ++rank) EXPECT_LE(peaks[rank], most[rank]) << "rank " << rank;
    return;
  }
  EXPECT_EQ(costs->scale.to_text(played.makespan), row.makespan);
  EXPECT_EQ(costs->scale.to_text(played.max_stage_span), row.max_stage_span);
  EXPECT_EQ(costs->scale.to_text(played.idle_total), row.idle_total);
  EXPECT_NEAR(played.bubble_fraction, row.bubble_fraction, 5.1e-7);
  EXPECT_NEAR(played.stage_bubble_rate, row.stage_bubble_rate, 5.1e-7);
  EXPECT_EQ(peaks, numbers(row.peaks));
  EXPECT_EQ(peak_activations_per_rank(program, false), numbers(row.peaks));
}

TEST(Simulate, every_published_shape_has_the_published_times) {
  // Every figure that `penstock schedule` prints rests on these.
  for (const ExpectedRow& row : kExpectedRows) expect_row(row);
}

Ticks interleaved_bound(int ranks, int microbatches, int chunks) {
  return std::max(microbatches * chunks + ranks - 1, ranks * chunks + microbatches - 1);
}

TEST(Simulate, interleaved_with_any_microbatches_is_as_short_as_any_schedule_can_be) {
  for (const StageCosts costs :
       {StageCosts{1, 1, 1}, StageCosts{1, 1, 0}, StageCosts{4, 3, 4}, StageCosts{1, 3, 2}}) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      for (int chunks = 1; chunks <= 4; ++chunks) {
        for (int m = 1; m <= 24; ++m) {
          const ComputeProgram program = program_of("interleaved-1f1b", ranks, m, chunks);
          const Ticks one = costs.forward + costs.input_gradient + costs.weight_gradient;
          EXPECT_EQ(play(program, uniform_costs(program.stages(), costs)).makespan,
                    interleaved_bound(ranks, m, chunks) * one)
              << "P=" << ranks << " V=" << chunks << " m=" << m << " F=" << costs.forward
              << " B=" << one - costs.forward;
        }
      }
    }
  }
}

// The table as text, one line a rank: "0F0 .. 4B0 --", where -- is the second slot of a backward.
std::string table_of(const Simulation& played, int rank) {
  std::string line;
  Ticks slot = 0;
  for (const TimedAction& timed : played.ranks[rank].actions) {
    for (; slot < timed.start; ++slot) line += ".. ";
    line += to_string(timed.action) + " ";
    for (++slot; slot < timed.end; ++slot) line += "-- ";
  }
  for (; slot < played.makespan; ++slot) line += ".. ";
  line.pop_back();
  return line;
}

Simulation aligned(const std::string& name, int ranks, int microbatches, int chunks) {
  const ComputeProgram program = program_of(name, ranks, microbatches, chunks);
  return play(program, uniform_costs(program.stages(), kUnit), Timeline::Aligned);
}

TEST(Simulate, aligned_interleaved_is_the_published_table) {
  const Simulation played = aligned("interleaved-1f1b", 4, 8, 2);
  EXPECT_EQ(
      table_of(played, 0),
      "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 .. .. .. .. .. .. 0F6 4B0 -- 0F7 4B1 -- 4F4 4B2 -- 4F5 4B3 -- "
      "4F6 "
      "0B0 -- 4F7 0B1 -- .. 0B2 -- .. 0B3 -- .. 4B4 -- 4B5 -- 4B6 -- 4B7 -- 0B4 -- 0B5 -- 0B6 -- 0B7 --");
  EXPECT_EQ(
      table_of(played, 1),
      ".. 1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 .. .. .. .. 1F4 5B0 -- 1F5 5B1 -- 1F6 5B2 -- 1F7 5B3 -- 5F4 1B0 -- "
      "5F5 "
      "1B1 -- 5F6 1B2 -- 5F7 1B3 -- .. 5B4 -- .. 5B5 -- 5B6 -- 5B7 -- 1B4 -- 1B5 -- 1B6 -- 1B7 -- .. ..");
  EXPECT_EQ(
      table_of(played, 2),
      ".. .. 2F0 2F1 2F2 2F3 6F0 6F1 .. .. 6F2 6B0 -- 6F3 6B1 -- 2F4 6B2 -- 2F5 6B3 -- 2F6 2B0 -- 2F7 2B1 -- "
      "6F4 "
      "2B2 -- 6F5 2B3 -- 6F6 6B4 -- 6F7 6B5 -- .. 6B6 -- 6B7 -- 2B4 -- 2B5 -- 2B6 -- 2B7 -- .. .. .. ..");
  EXPECT_EQ(
      table_of(played, 3),
      ".. .. .. 3F0 3F1 3F2 3F3 7F0 7B0 -- 7F1 7B1 -- 7F2 7B2 -- 7F3 7B3 -- 3F4 3B0 -- 3F5 3B1 -- 3F6 3B2 -- "
      "3F7 "
      "3B3 -- 7F4 7B4 -- 7F5 7B5 -- 7F6 7B6 -- 7F7 7B7 -- 3B4 -- 3B5 -- 3B6 -- 3B7 -- .. .. .. .. .. ..");
  EXPECT_EQ(played.makespan, 57);
  EXPECT_EQ(played.idle_total, 36);
  EXPECT_EQ(played.handoffs.local, 0);
  EXPECT_EQ(played.handoffs.hidden, 59);
  EXPECT_EQ(played.handoffs.exposed, 53);
}

TEST(Simulate, aligned_tables_of_other_shapes_have_the_published_sizes) {
  struct Size {
    int ranks, microbatches;
    Ticks slots, empty;
  };
  for (const Size& size : {Size{4, 16, 105, 36}, Size{8, 16, 117, 168}, Size{8, 64, 405, 168}}) {
    const Simulation played = aligned("interleaved-1f1b", size.ranks, size.microbatches, 2);
    EXPECT_EQ(played.makespan, size.slots);
    EXPECT_EQ(played.idle_total, size.empty);
  }
  const std::vector<std::string> cells = split_on(table_of(aligned("interleaved-1f1b", 8, 64, 2), 1), ' ');
  EXPECT_THAT(std::vector(cells.begin() + 42, cells.begin() + 46),
              testing::ElementsAre("1F15", "9B3", "--", "9F8"));
}

TEST(Simulate, aligned_applies_from_its_least_microbatches_on_and_keeps_the_ideal_length) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int m = std::max(ranks, 2 * ranks - 3); m <= 24; ++m) {
        for (const char* name : {"1f1b", "interleaved-1f1b"}) {
          if (chunks > 1 && name == std::string("1f1b")) continue;
          const Simulation played = aligned(name, ranks, m, chunks);
          EXPECT_EQ(played.makespan, 3 * (m * chunks + ranks - 1))
              << name << ranks << " " << m << " " << chunks;
        }
      }
    }
  }
}

TEST(Simulate, aligned_where_it_does_not_apply_is_refused_with_the_reason) {
  const auto refusal = [](const char* name, int ranks, int m, const StageCosts& costs) {
    const ComputeProgram program = program_of(name, ranks, m, 1);
    const auto played = simulate(program, uniform_costs(ranks, costs), Timeline::Aligned);
    EXPECT_EQ(played.status().code(), StatusCode::kFailedPrecondition);
    return message(played.status());
  };
  EXPECT_THAT(refusal("1f1b", 5, 6, kUnit), testing::HasSubstr("at least 7 microbatches"));
  EXPECT_THAT(refusal("1f1b", 4, 8, {1, 2, 1}), testing::HasSubstr("F=1 and B=2"));
  EXPECT_THAT(refusal("gpipe", 4, 8, kUnit), testing::HasSubstr("gpipe does not follow it"));
}

TEST(Simulate, every_idle_tick_has_one_cause) {
  // The figures under a bubble must add up, or nobody can act on them.
  for (const ExpectedRow& row : kExpectedRows) {
    const ComputeProgram program = program_of(row.schedule, row.ranks, row.microbatches, row.stages_per_rank);
    const auto costs = parse_uniform_costs(row.costs, row.latency);
    const Simulation played = play(program, costs->for_stages(program.stages()));
    for (const RankTimeline& rank : played.ranks) {
      EXPECT_EQ(
          rank.busy + rank.idle_warm_up + rank.idle_cool_down + rank.idle_dependency + rank.idle_transfer,
          played.makespan);
    }
  }
}

TEST(Simulate, wait_for_a_message_on_its_way_is_a_transfer_and_not_a_dependency) {
  // naive, P=2, m=1, F=1, B=2, latency 5: rank 0 waits from 1 to 14 for a gradient that is made at 9.
  const ComputeProgram program = program_of("naive", 2, 1, 1);
  SimulationCosts costs = uniform_costs(2, kUnit);
  costs.latency = 5;
  const Simulation played = play(program, costs);
  EXPECT_EQ(played.makespan, 16);
  EXPECT_EQ(played.ranks[0].idle_dependency, 8);
  EXPECT_EQ(played.ranks[0].idle_transfer, 5);
  EXPECT_EQ(played.ranks[1].idle_warm_up, 6);
  EXPECT_EQ(played.ranks[1].idle_cool_down, 7);
}

TEST(Simulate, messages_of_a_link_follow_one_another) {
  // gpipe, P=2, m=3, F=1: activations are made at 1, 2, 3; each holds the link for 4, and is there 2 later.
  const ComputeProgram program = program_of("gpipe", 2, 3, 1);
  SimulationCosts costs = uniform_costs(2, kUnit);
  costs.latency = 2;
  costs.bandwidth = {.bytes = 5, .ticks = 2};
  costs.message_bytes = {10};
  const auto starts = [&] {
    const Simulation played = play(program, costs);
    std::vector<Ticks> of_rank_1;
    for (const TimedAction& timed : played.ranks[1].actions) of_rank_1.push_back(timed.start);
    of_rank_1.resize(3);
    return of_rank_1;
  };
  EXPECT_THAT(starts(), testing::ElementsAre(7, 11, 15));
  costs.message_bytes = {11};  // 4.4 ticks: a tick is not divided
  EXPECT_THAT(starts(), testing::ElementsAre(8, 13, 18));
  costs.links = {{RankIndex(0), RankIndex(1), {.latency = 0, .ticks_per_message = 1, .bandwidth = {}}}};
  EXPECT_THAT(starts(), testing::ElementsAre(2, 3, 4));
}

TEST(Simulate, fused_backward_may_cost_something_of_its_own) {
  const ComputeProgram program = program_of("1f1b", 1, 2, 1);
  SimulationCosts costs = uniform_costs(1, {3, 2, 2});
  EXPECT_EQ(play(program, costs).makespan, 2 * (3 + 4));
  costs.stages[0].backward = 3;
  EXPECT_EQ(play(program, costs).makespan, 2 * (3 + 3));
}

TEST(Simulate, bubble_over_total_and_over_useful_time_are_two_figures) {
  // 1F1B, P=4, m=8: (P-1)/(m+P-1) and (P-1)/m.
  const ComputeProgram program = program_of("1f1b", 4, 8, 1);
  const Simulation played = play(program, uniform_costs(4, kUnit));
  EXPECT_DOUBLE_EQ(played.bubble_fraction, 3.0 / 11);
  EXPECT_DOUBLE_EQ(played.bubble_to_busy, 3.0 / 8);
}

TEST(Simulate, span_without_a_bubble_and_makespan_with_one_are_two_figures) {
  // ZB-H2, P=4, m=8: no rank idles within its own span, and the whole is as long as that of ZB-H1.
  const Simulation second = play(program_of("zb-h2", 4, 8, 1), uniform_costs(4, kUnit));
  EXPECT_EQ(second.stage_bubble_rate, 0);
  EXPECT_NEAR(second.bubble_fraction, 0.111, 0.0005);
  EXPECT_EQ(second.makespan, 27);
  EXPECT_EQ(play(program_of("zb-h1", 4, 8, 1), uniform_costs(4, kUnit)).makespan, 27);
}

// --- lowered programs: posts, slots and resident waits

// gpipe, P=2, m=2, F=10, B=20; every receive stands right before its wait, but for the activations of rank 1,
// whose receives have `slots`.
LoweredProgram receives_with(int slots) {
  LoweredProgram program = *lower(program_of("gpipe", 2, 2, 1), {.receive_slots_per_link = slots});
  auto& first = program.ranks[0].instructions;
  std::vector<Instruction> posts;
  std::erase_if(first, [&](const Instruction& instruction) {
    if (instruction.kind != InstructionKind::PostReceive) return false;
    posts.push_back(instruction);
    return true;
  });
  for (const Instruction& post : posts) {
    const auto wait = std::find_if(first.begin(), first.end(), [&](const Instruction& instruction) {
      return instruction.kind == InstructionKind::WaitReceive && instruction.work == post.work;
    });
    first.insert(wait, post);
  }
  return program;
}

Simulation play_lowered(const LoweredProgram& program, ResidentWaits waits) {
  SimulationCosts costs = uniform_costs(2, {10, 10, 10});
  costs.waits = waits;
  StatusOr<Simulation> simulation = simulate(program, costs);
  if (!simulation.ok()) throw std::runtime_error(message(simulation.status()));
  return *std::move(simulation);
}

constexpr ResidentWaits kTwoOfTenBlocks{.blocks = 10, .blocks_per_wait = 2};
constexpr ResidentWaits kOneOfTenBlocks{.blocks = 10, .blocks_per_wait = 1};
constexpr ResidentWaits kOneSided{};

TEST(ResidentWaits, peers_that_arrive_together_slow_nothing) {
  // Rank 1 posts its second receive at 20, when rank 0 sends: panel (a).
  const LoweredProgram matched = receives_with(1);
  for (const ResidentWaits waits : {kTwoOfTenBlocks, kOneSided}) {
    const Simulation played = play_lowered(matched, waits);
    EXPECT_EQ(played.makespan, 90);
    for (const RankTimeline& rank : played.ranks) EXPECT_EQ(rank.slowed, 0);
  }
}

TEST(ResidentWaits, early_receive_stretches_the_compute_beside_it_without_an_idle_gap) {
  // Panel (b). Rank 1 has posted its second receive when it runs 1F0, from 10 on; until 20 that leaves 8 of 10
  // blocks, so that 8 ticks of work are done; the rest runs at full speed.
  const Simulation skewed = play_lowered(receives_with(2), kTwoOfTenBlocks);
  const RankTimeline& early = skewed.ranks[1];
  EXPECT_EQ(early.actions[0].start, 10);
  EXPECT_EQ(early.actions[0].end, 22);
  EXPECT_EQ(early.actions[1].start, 22);
  EXPECT_EQ(early.slowed, 2);
  EXPECT_EQ(early.idle_dependency + early.idle_transfer, 0);
  EXPECT_EQ(skewed.makespan, 92);
}

TEST(ResidentWaits, fewer_blocks_slow_less_and_do_not_remove_the_wait) {
  EXPECT_EQ(play_lowered(receives_with(2), kOneOfTenBlocks).ranks[1].slowed, 1);
}

TEST(ResidentWaits, one_sided_put_slows_nothing) {
  const Simulation played = play_lowered(receives_with(2), kOneSided);
  EXPECT_EQ(played.makespan, 90);
  EXPECT_EQ(played.ranks[1].slowed, 0);
}

TEST(ResidentWaits, early_send_waits_for_its_receive_and_slows_its_own_rank) {
  // Stage 1 is slow and has one receive slot: what rank 0 sends at 26 is posted when 1F0 has ended at 43.
  const LoweredProgram program = *lower(program_of("gpipe", 2, 3, 1), {.receive_slots_per_link = 1});
  SimulationCosts costs = uniform_costs(2, {10, 10, 10});
  costs.stages[1] = {30, 10, 10};
  costs.waits = kTwoOfTenBlocks;
  const Simulation played = *simulate(program, costs);
  // The gradient's receive, posted at 0, waits beside all forwards, the send beside the third as well.
  EXPECT_EQ(played.ranks[0].actions[0].end, 13);  // 10 x 10/8, rounded up to a tick
  EXPECT_EQ(played.ranks[0].actions[1].end, 26);
  EXPECT_EQ(played.ranks[0].actions[2].end, 26 + 17);  // 10 x 10/6
}

TEST(SimulateLowered, missing_slot_makes_the_sender_wait_for_the_transfer) {
  // naive would never; gpipe with one slot each way and a slow reader does.
  const ComputeProgram program = program_of("gpipe", 2, 3, 1);
  SimulationCosts costs = uniform_costs(2, {1, 1, 1});
  costs.stages[1] = {5, 1, 1};
  const LoweredProgram narrow = *lower(program, {.receive_slots_per_link = 1, .send_slots_per_link = 1});
  const Simulation played = *simulate(narrow, costs);
  // 0F1 ends at 2 and its message leaves when 1F0 has freed the slot, at 6: then 0F2 may write.
  EXPECT_EQ(played.ranks[0].actions[2].start, 6);
  EXPECT_EQ(played.ranks[0].idle_transfer, 4);
  EXPECT_EQ(play(program, costs).ranks[0].actions[2].start, 2);
}

TEST(SimulateLowered, ranks_that_wait_for_each_other_are_refused_and_do_not_hang) {
  LoweredProgram program = *lower(program_of("1f1b", 2, 1, 1));
  auto& list = program.ranks[0].instructions;
  std::erase_if(list, [](const Instruction& i) { return i.kind == InstructionKind::Send; });
  std::erase_if(list, [](const Instruction& i) { return i.kind == InstructionKind::WaitSend; });
  EXPECT_EQ(simulate(program, uniform_costs(2, kUnit)).status().code(), StatusCode::kFailedPrecondition);
}

TEST(Simulate, costs_of_each_stage_count) {
  // One slow stage sets the pace: 1f1b, P=3, stage 1 twice as slow, m=4.
  const ComputeProgram program = program_of("1f1b", 3, 4, 1);
  SimulationCosts costs = uniform_costs(3, kUnit);
  costs.stages[1] = {2, 2, 2};
  const Simulation played = play(program, costs);
  EXPECT_EQ(played.ranks[1].busy, 24);
  EXPECT_EQ(played.ranks[0].busy, 12);
  // 0F0, then stage 1 without a pause but for one tick before 1B0, which waits for 2B0, then 0B3.
  EXPECT_EQ(played.makespan, 1 + 24 + 1 + 2);
  EXPECT_EQ(played.ranks[1].idle_dependency, 1);
}

TEST(Simulate, pair_takes_its_own_time_and_holds_both_halves) {
  ComputeProgram program;
  program.schedule = "file:pair";
  program.ranks = 1;
  program.microbatches = 2;
  program.placement = loop_placement(1, 1);
  program.actions = {
      {*parse_action("0F0"), *parse_action("O(0F1;0B0)"), *parse_action("0I1"), *parse_action("0W1")}};
  ASSERT_TRUE(verify(program).valid());
  SimulationCosts costs = uniform_costs(1, {2, 3, 4});
  EXPECT_EQ(play(program, costs).makespan, 2 + (2 + 7) + 3 + 4);
  costs.overlapped_pair = 8;
  EXPECT_EQ(play(program, costs).makespan, 2 + 8 + 3 + 4);
  EXPECT_EQ(peak_activations_per_rank(program, true), std::vector{2});
}

TEST(Simulate, forward_only_program_has_forwards_only) {
  ComputeProgram program = program_of("gpipe", 3, 4, 1);
  program.forward_only = true;
  for (auto& actions : program.actions) actions.resize(4);
  const Simulation played = play(program, uniform_costs(3, kUnit));
  EXPECT_EQ(played.makespan, 4 + 2);
  EXPECT_EQ(played.transfers_backward, 0);
}

TEST(Simulate, costs_that_do_not_fit_are_refused) {
  const ComputeProgram program = program_of("1f1b", 2, 2, 1);
  const auto code = [&](const SimulationCosts& costs) { return simulate(program, costs).status().code(); };
  EXPECT_EQ(code(uniform_costs(3, kUnit)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(uniform_costs(2, {-1, 1, 1})), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(uniform_costs(2, {INT64_MAX / 4, 1, 1})), StatusCode::kInvalidArgument);
  std::vector<SimulationCosts> wrong(9, uniform_costs(2, kUnit));
  wrong[0].message_bytes = {1, 1};
  wrong[1].message_bytes = {-1};
  wrong[2].bandwidth = {-1, 1};
  wrong[3].links = {{RankIndex(0), RankIndex(2), {}}};
  wrong[4].links = {{RankIndex(1), RankIndex(1), {}}};
  wrong[5].links = {{RankIndex(0), RankIndex(1), {.latency = -1, .ticks_per_message = 0, .bandwidth = {}}}};
  wrong[6].waits = {4, 5};
  wrong[7].stages[1].backward = -3;
  wrong[8].message_bytes = {INT64_MAX};
  wrong[8].bandwidth = {1, INT64_MAX};
  for (size_t i = 0; i < wrong.size(); ++i) EXPECT_EQ(code(wrong[i]), StatusCode::kInvalidArgument) << i;
}

TEST(Simulate, program_with_a_cycle_is_refused_and_does_not_hang) {
  ComputeProgram program = program_of("1f1b", 2, 2, 1);
  std::swap(program.actions[0][0], program.actions[0].back());
  EXPECT_EQ(simulate(program, uniform_costs(2, kUnit)).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace penstock::plan
