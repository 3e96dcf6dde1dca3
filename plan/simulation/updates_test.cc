// From step to step: what the optimizer takes of each rank, before the next step's first action.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "plan/schedule/dataflow.h"
#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

ComputeProgram program_of(const std::string& name, int ranks, int microbatches, int stages_per_rank = 1) {
  return *generate({name, ranks, microbatches, stages_per_rank});
}

constexpr StageCosts kUnit{.forward = 1, .input_gradient = 1, .weight_gradient = 1};

TEST(Updates, hide_behind_each_other_and_behind_the_way_to_a_rank) {
  // 1f1b, P=2, m=2, F=1, B=2. Rank 0: update until 3, F0 3-4, F1 4-5, B0 7-9, B1 10-12. Rank 1: update until 1, waits for F0
  // until 4, then F0, B0 until 7 and F1, B1 until 10.
  SimulationCosts costs = uniform_costs(2, kUnit);
  costs.updates = {3, 1};
  const StatusOr<Simulation> played = simulate(program_of("1f1b", 2, 2), costs);
  ASSERT_TRUE(played.ok()) << played.status();
  EXPECT_EQ(played->makespan, 12);
  EXPECT_EQ(played->ranks[0].busy, 9);
  EXPECT_EQ(played->ranks[1].busy, 7);
  EXPECT_EQ(played->ranks[0].idle_warm_up, 0);
  EXPECT_EQ(played->ranks[1].idle_warm_up, 3);
  EXPECT_EQ(played->ranks[1].idle_cool_down, 2);
  EXPECT_EQ(played->idle_total, 8);
  costs.updates = {0, 1};  // over when the first activation comes
  EXPECT_EQ(simulate(program_of("1f1b", 2, 2), costs)->makespan, 9);
}

// Ends of all actions by relaxation, until nothing changes: another way than the simulation goes.
Ticks longest_path(const ComputeProgram& program, const SimulationCosts& costs) {
  std::map<std::tuple<int, ActionKind, int>, Ticks> ends;
  const auto key_of = [](const Work& work) {
    return std::tuple(work.stage.value, work.kind, work.microbatch.value);
  };
  const auto made_by = [&](const Work& work) -> std::optional<Ticks> {
    if (work.kind == ActionKind::WeightGradient) return 0;
    const bool forward = work.kind == ActionKind::Forward;
    const int source = work.stage.value + (forward ? -1 : 1);
    if (source < 0 || source >= program.stages()) return 0;
    const std::vector<ActionKind> makers = forward
                                               ? std::vector{ActionKind::Forward}
                                               : std::vector{ActionKind::Backward, ActionKind::InputGradient};
    for (const ActionKind kind : makers) {
      const auto found = ends.find({source, kind, work.microbatch.value});
      if (found != ends.end()) return found->second;
    }
    return std::nullopt;
  };
  const auto cost_of = [&](const Work& work) {
    const StageCosts& stage = costs.stages[work.stage.value];
    switch (work.kind) {
      case ActionKind::Forward:
        return stage.forward;
      case ActionKind::Backward:
        return stage.fused_backward();
      case ActionKind::InputGradient:
        return stage.input_gradient;
      default:
        return stage.weight_gradient;
    }
  };
  Ticks last = 0;
  for (bool changes = true; changes;) {
    changes = false;
    for (int rank = 0; rank < program.ranks; ++rank) {
      Ticks free = costs.updates[rank];
      for (const Action& action : program.actions[rank]) {
        const std::optional<Ticks> made = made_by(action.work);
        if (!made) break;
        free = std::max(free, *made) + cost_of(action.work);
        Ticks& end = ends[key_of(action.work)];
        changes = changes || end != free;
        end = free;
      }
      last = std::max(last, free);
    }
  }
  return last;
}

TEST(Updates, of_any_length_make_the_step_as_long_as_its_longest_chain) {
  std::mt19937 random(11);
  const auto upto = [&](int most) { return std::uniform_int_distribution<Ticks>(0, most)(random); };
  for (const auto& [name, chunks] : std::vector<std::pair<std::string, int>>{
           {"gpipe", 1}, {"1f1b", 1}, {"zb-h1", 1}, {"interleaved-1f1b", 2}, {"1f1b-v", 2}, {"zb-v", 2}}) {
    for (int round = 0; round < 20; ++round) {
      const int ranks = 2 + round % 3;
      const ComputeProgram program = program_of(name, ranks, 2 * ranks, chunks);
      SimulationCosts costs;
      for (int stage = 0; stage < program.stages(); ++stage)
        costs.stages.push_back({1 + upto(9), 1 + upto(9), 1 + upto(9)});
      for (int rank = 0; rank < ranks; ++rank) costs.updates.push_back(upto(60));
      const StatusOr<Simulation> played = simulate(program, costs);
      ASSERT_TRUE(played.ok()) << played.status();
      EXPECT_EQ(played->makespan, longest_path(program, costs)) << name << " round " << round;
      for (const RankTimeline& rank : played->ranks) {
        EXPECT_EQ(
            rank.busy + rank.idle_warm_up + rank.idle_cool_down + rank.idle_dependency + rank.idle_transfer,
            played->makespan);
      }
    }
  }
}

TEST(Updates, that_do_not_fit_the_program_are_refused) {
  const auto refusal = [](const ComputeProgram& program, std::vector<Ticks> updates,
                          Timeline timeline = Timeline::Earliest) {
    SimulationCosts costs = uniform_costs(program.stages(), kUnit);
    costs.updates = std::move(updates);
    return message(simulate(program, costs, timeline).status());
  };
  const ComputeProgram program = program_of("1f1b", 2, 2);
  EXPECT_EQ(refusal(program, {1}),
            "costs: updates: expected those of 2 ranks before one step, found 1 before 1");
  EXPECT_THAT(refusal(program, {1, -1}), HasSubstr("expected 0 or more, found -1"));
  EXPECT_THAT(refusal(program, {1, INT64_MAX / 2}), HasSubstr("more than can be counted"));
  EXPECT_THAT(refusal(program, {1, 1}, Timeline::Aligned), HasSubstr("no updates"));
  EXPECT_THAT(refusal(*generate({.name = "1f1b", .ranks = 2, .microbatches = 2, .updates = 2}), {1, 1}),
              HasSubstr("found 2 before 2"));
  SimulationCosts costs = uniform_costs(2, kUnit);
  costs.updates = {1, 1};
  const StatusOr<LoweredProgram> lowered = lower(program);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(message(simulate(*lowered, costs).status()), HasSubstr("a lowered program has its own"));
}

}  // namespace
}  // namespace penstock::plan
