#include "plan/simulation/memory_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/schedule/families.h"
#include "plan/simulation/simulate.h"
#include "plan/verification/testing/random_programs.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

constexpr ActivationBytes kWholeUntilWeightGradient{1, 0, -1};
constexpr ActivationBytes kUntilInputGradient{1, -1, 0};

ComputeProgram program_of(int ranks, int microbatches, const std::vector<std::vector<std::string>>& texts) {
  ComputeProgram program;
  program.ranks = ranks;
  program.microbatches = microbatches;
  program.placement = loop_placement(ranks, 1);
  for (const auto& of_rank : texts) {
    auto& actions = program.actions.emplace_back();
    for (const std::string& text : of_rank) actions.push_back(*parse_action(text));
  }
  return program;
}

Simulation play(const ComputeProgram& program) {
  return *simulate(program, uniform_costs(program.stages(), {1, 1, 1}));
}

MemoryCosts uniform(const ComputeProgram& program, const ActivationBytes& bytes) {
  return {.stages = std::vector<ActivationBytes>(program.stages(), bytes),
          .static_bytes = {},
          .message_bytes = {}};
}

std::string line(const RankMemory& memory) {
  std::string text;
  for (const MemoryPoint& point : memory.points)
    text += fmt::format("{}{}:{}+{}+{}", text.empty() ? "" : " ", point.time, point.use.static_bytes,
                        point.use.activations, point.use.boundary);
  return text;
}

TEST(MemoryOverTime, each_part_adds_its_bytes_at_its_own_moment) {
  // The paper's M_B = 10 from F to B, then M_W = 4 until W. F at 0 and 1, I at 2 and 3, W at 4 and 5.
  const ComputeProgram program = program_of(1, 2, {{"0F0", "0F1", "0I0", "0I1", "0W0", "0W1"}});
  MemoryCosts costs = uniform(program, {10, -6, -4});
  costs.static_bytes = {100};
  const auto memory = memory_over_time(program, play(program), costs);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(line(memory->front()), "0:100+10+0 1:100+20+0 3:100+14+0 4:100+8+0 5:100+4+0 6:100+0+0");
  EXPECT_EQ(memory->front().peak.total(), 120);
  EXPECT_EQ(memory->front().peak.activations, 20);
  EXPECT_EQ(memory->front().peak_time, 1);
}

TEST(MemoryOverTime, fused_backward_releases_all_at_its_end_and_a_pair_holds_both) {
  const ComputeProgram program = program_of(1, 2, {{"0F0", "O(0F1;0B0)", "0B1"}});
  const auto memory = memory_over_time(program, play(program), uniform(program, {10, -6, -4}));
  EXPECT_EQ(line(memory->front()), "0:0+10+0 1:0+20+0 4:0+10+0 6:0+0+0");
}

TEST(MemoryOverTime, forward_only_program_keeps_nothing) {
  ComputeProgram program = program_of(1, 2, {{"0F0", "0F1"}});
  program.forward_only = true;
  const auto memory = memory_over_time(program, play(program), uniform(program, {10, -6, -4}));
  EXPECT_EQ(line(memory->front()), "0:0+10+0 2:0+0+0");
}

TEST(MemoryOverTime, peaks_are_those_counted_in_program_order) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    judging::Random random(seed);
    const ComputeProgram program = judging::random_program(random);
    const Simulation played = play(program);
    for (const bool until_weight_gradient : {true, false}) {
      const auto memory = memory_over_time(
          program, played,
          uniform(program, until_weight_gradient ? kWholeUntilWeightGradient : kUntilInputGradient));
      ASSERT_TRUE(memory.ok()) << memory.status();
      std::vector<int> peaks;
      for (const RankMemory& rank : *memory) {
        peaks.push_back(static_cast<int>(rank.peak.activations));
        EXPECT_EQ(rank.points.back().use.activations, 0);
      }
      EXPECT_EQ(peaks, peak_activations_per_rank(program, until_weight_gradient)) << "seed " << seed;
    }
  }
}

TEST(MemoryOverTime, boundary_tensors_count_from_post_to_reader_and_from_producer_to_wait) {
  // gpipe, one slot a link, tensors of 5 bytes. Rank 0 holds a receive slot for a gradient all along, and a
  // send slot from each forward until the wait for it, which stands before the next one.
  const ComputeProgram program =
      program_of(2, 2, {{"0F0", "0F1", "0B0", "0B1"}, {"1F0", "1F1", "1B0", "1B1"}});
  const LoweredProgram lowered = *lower(program, {1, 1});
  MemoryCosts costs = uniform(program, {0, 0, 0});
  costs.message_bytes = {5};
  const auto memory = memory_over_time(program, lowered, play(program), costs);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(line((*memory)[0]), "0:0+0+10 9:0+0+0");
  // Rank 1 holds a receive slot until 1F1 has ended at 3, and a send slot from the start of 1B0 at 3 on.
  EXPECT_EQ(line((*memory)[1]), "0:0+0+5 7:0+0+0");
  EXPECT_EQ((*memory)[0].peak.boundary, 10);
}

TEST(MemoryOverTime, boundary_ends_at_zero_and_never_exceeds_the_slots) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    judging::Random random(seed);
    const ComputeProgram program = judging::random_program(random);
    const LoweredProgram lowered = *lower(program, {1 + judging::draw(random, 3), 1});
    MemoryCosts costs = uniform(program, {0, 0, 0});
    costs.message_bytes.assign(program.stages() - 1, 1);
    const auto memory = memory_over_time(program, lowered, play(program), costs);
    ASSERT_TRUE(memory.ok()) << memory.status();
    for (int rank = 0; rank < program.ranks; ++rank) {
      int slots = 0;
      for (const Link& link : lowered.ranks[rank].links)
        slots += link.target.value == rank ? link.receive_slots : link.send_slots;
      EXPECT_EQ((*memory)[rank].points.back().use.boundary, 0) << "seed " << seed;
      EXPECT_LE((*memory)[rank].peak.boundary, slots) << "seed " << seed;
    }
  }
}

TEST(MemoryOverTime, zero_bubble_peaks_are_the_published_sums_of_both_parts) {
  // Zero Bubble, table 2, worker i from 1: (p-i+1) M_B + (i-1) M_W, and (2p-2i+1) M_B + (2i-2) M_W.
  constexpr int64_t kBefore = 10, kAfter = 4, kRanks = 4;
  for (const int h : {1, 2}) {
    const ComputeProgram program =
        *generate({.name = h == 1 ? "zb-h1" : "zb-h2", .ranks = kRanks, .microbatches = 12});
    const auto memory =
        memory_over_time(program, play(program), uniform(program, {kBefore, kAfter - kBefore, -kAfter}));
    ASSERT_TRUE(memory.ok()) << memory.status();
    for (int64_t i = 1; i <= kRanks; ++i) {
      const int64_t expected = h == 1 ? (kRanks - i + 1) * kBefore + (i - 1) * kAfter
                                      : (2 * kRanks - 2 * i + 1) * kBefore + (2 * i - 2) * kAfter;
      EXPECT_EQ((*memory)[i - 1].peak.activations, expected) << "h " << h << " worker " << i;
    }
  }
}

TEST(MemoryOverTime, activation_of_two_stages_a_rank_is_half_of_the_rank) {
  // ZB-V, P=4: 8 at once on every rank, which is the 4 whole ranks' worth that 1F1B holds on its first.
  const ComputeProgram program = *generate({.name = "zb-v", .ranks = 4, .microbatches = 8});
  const auto memory = memory_over_time(program, play(program), uniform(program, kWholeUntilWeightGradient));
  for (const RankMemory& rank : *memory) EXPECT_EQ(rank.peak.activations, 2 * 4);
}

// The most boundary tensors that each rank holds at once.
std::vector<int64_t> boundary_peaks(const std::string& name, int microbatches) {
  const ComputeProgram program = *generate({.name = name, .ranks = 4, .microbatches = microbatches});
  const LoweredProgram lowered = *lower(program);
  MemoryCosts costs = uniform(program, {0, 0, 0});
  costs.message_bytes.assign(program.stages() - 1, 1);
  std::vector<int64_t> peaks;
  const auto memory = memory_over_time(program, lowered, play(program), costs);
  for (const RankMemory& rank : *memory) peaks.push_back(rank.peak.boundary);
  return peaks;
}

TEST(MemoryOverTime, sent_tensors_are_not_held_to_the_end_of_the_step) {
  // Then they would grow with the microbatches.
  for (const char* name : {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"})
    EXPECT_EQ(boundary_peaks(name, 64), boundary_peaks(name, 16)) << name;
}

TEST(MemoryOverTime, memory_of_the_last_stage_does_not_grow_with_the_microbatches) {
  for (const int m : {1, 8, 64}) {
    const ComputeProgram program = *generate({.name = "1f1b", .ranks = 4, .microbatches = m});
    const auto memory = memory_over_time(program, play(program), uniform(program, kWholeUntilWeightGradient));
    EXPECT_EQ(memory->back().peak.activations, 1) << m;
    EXPECT_EQ(memory->front().peak.activations, std::min(4, m));
  }
}

TEST(MemoryOverTime, costs_that_do_not_fit_are_refused) {
  const ComputeProgram program = *generate({"1f1b", 2, 2, 1});
  const Simulation played = play(program);
  const auto refusal = [&](const MemoryCosts& costs) {
    const auto memory = memory_over_time(program, played, costs);
    EXPECT_EQ(memory.status().code(), StatusCode::kInvalidArgument);
    return message(memory.status());
  };
  MemoryCosts costs = uniform(program, {10, -6, -3});
  EXPECT_THAT(refusal(costs), HasSubstr("stages[0]: expected parts that sum to 0, found 10 at F, -6 at I"));
  costs = uniform(program, {10, -6, -4});
  costs.stages.pop_back();
  EXPECT_THAT(refusal(costs), HasSubstr("stages: expected 2 entries, found 1"));
  costs = uniform(program, {INT64_MAX, -INT64_MAX, 0});
  EXPECT_THAT(refusal(costs), HasSubstr("stages[0]: expected at most"));
  costs = uniform(program, {10, -6, -4});
  costs.static_bytes = {1};
  EXPECT_THAT(refusal(costs), HasSubstr("static_bytes: expected 2 entries, found 1"));
}

}  // namespace
}  // namespace penstock::plan
