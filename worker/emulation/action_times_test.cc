#include "worker/emulation/action_times.h"

#include <gtest/gtest.h>

#include "plan/schedule/families.h"

namespace penstock::worker {
namespace {

using plan::ActionKind;

plan::EmulatedCosts costs_of(int stages) {
  plan::EmulatedCosts costs;
  for (int stage = 0; stage < stages; ++stage) {
    costs.stages.push_back({.forward_ns = 100 + stage,
                            .backward_ns = 250 + stage,
                            .input_gradient_ns = 120 + stage,
                            .weight_gradient_ns = 80 + stage});
  }
  return costs;
}

plan::RankProgram program_of(const std::string& schedule, int ranks, int stages_per_rank, int rank) {
  const plan::ComputeProgram program = *plan::generate(
      {.name = schedule, .ranks = ranks, .microbatches = 8, .stages_per_rank = stages_per_rank});
  return plan::lower(program)->ranks[static_cast<size_t>(rank)];
}

TEST(ActionTimes, every_kind_of_every_stage_has_its_own) {
  const ActionTimes times(program_of("1f1b", 2, 1, 0), costs_of(2));
  const auto of = [&](int stage, ActionKind kind) {
    return times.of(StageIndex(stage), kind, MicrobatchIndex(0)).count();
  };
  EXPECT_EQ(of(0, ActionKind::Forward), 100);
  EXPECT_EQ(of(1, ActionKind::Backward), 251);
  EXPECT_EQ(of(1, ActionKind::InputGradient), 121);
  EXPECT_EQ(of(0, ActionKind::WeightGradient), 80);
}

TEST(ActionTimes, halves_of_a_pair_share_its_cost) {
  const plan::RankProgram program = program_of("dualpipe-v", 2, 2, 0);
  plan::EmulatedCosts costs = costs_of(4);
  costs.overlapped_pair_ns = 301;
  const ActionTimes times(program, costs);
  int pairs = 0;
  for (size_t i = 0; i + 1 < program.instructions.size(); ++i) {
    if (!program.instructions[i].overlaps_next) continue;
    ++pairs;
    const plan::Work& first = program.instructions[i].work;
    const plan::Work& second = program.instructions[i + 1].work;
    EXPECT_EQ(times.of(first.stage, first.kind, first.microbatch) +
                  times.of(second.stage, second.kind, second.microbatch),
              301ns);
  }
  EXPECT_GT(pairs, 0);
}

TEST(ActionTimes, a_pair_without_a_cost_of_its_own_takes_both) {
  const plan::RankProgram program = program_of("dualpipe-v", 2, 2, 0);
  const ActionTimes times(program, costs_of(4));
  for (const plan::Instruction& instruction : program.instructions) {
    if (!instruction.overlaps_next || instruction.work.kind != ActionKind::Forward) continue;
    const plan::Work& work = instruction.work;
    EXPECT_EQ(times.of(work.stage, work.kind, work.microbatch).count(), 100 + work.stage.value);
  }
}

}  // namespace
}  // namespace penstock::worker
