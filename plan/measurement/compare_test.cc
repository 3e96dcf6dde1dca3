#include "plan/measurement/compare.h"

#include <gtest/gtest.h>

#include <string>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

// What a perfect machine would measure: the simulation itself, every wait as long as the simulation says.
MeasuredStep played(const ComputeProgram& program, const SimulationCosts& costs) {
  const Simulation simulation = simulate(program, costs).value();
  MeasuredStep step;
  for (const RankTimeline& rank : simulation.ranks) {
    MeasuredRank& measured = step.ranks.emplace_back();
    int64_t free = 0;
    for (const TimedAction& timed : rank.actions) {
      const int64_t middle = timed.action.overlapped ? (timed.start + timed.end) / 2 : timed.end;
      const auto add = [&](const Work& work, int64_t start, int64_t end) {
        if (const auto passage = incoming(work, program.stages())) {
          measured.waits.push_back({*passage, free, timed.start});
        }
        measured.works.push_back({work, start, end, end - start});
      };
      add(timed.action.work, timed.start, middle);
      if (timed.action.overlapped) add(*timed.action.overlapped, middle, timed.end);
      free = timed.end;
    }
  }
  return step;
}

SimulationCosts uneven_costs(const ComputeProgram& program) {
  SimulationCosts costs = uniform_costs(program.stages(), {});
  for (int stage = 0; stage < program.stages(); ++stage) {
    costs.stages[stage] = {.forward = 1'000'000 + 10'000 * stage,
                           .input_gradient = 1'100'000,
                           .weight_gradient = 900'000 + 5'000 * stage};
  }
  return costs;
}

class OfEveryFamily : public ::testing::TestWithParam<std::string> {};

TEST_P(OfEveryFamily, step_that_is_its_simulation_agrees_with_it) {
  // Costs come back as they were, and each class of the simulation is counted as the simulation counts it.
  const ComputeProgram program = generate({.name = GetParam(), .ranks = 4, .microbatches = 8}).value();
  const SimulationCosts costs = uneven_costs(program);
  const MeasuredStep step = played(program, costs);
  const Simulation expected = simulate(program, costs).value();
  ASSERT_TRUE(check_measured(program, step).ok()) << check_measured(program, step);
  EXPECT_EQ(makespan_ns(step), expected.makespan);
  const StatusOr<Comparison> found = compare(program, step);
  ASSERT_TRUE(found.ok()) << found.status();
  if (!program.has_replicas()) {  // their pairs are halved here, which is nobody's cost
    EXPECT_EQ(found->simulated_ns, expected.makespan);
    EXPECT_DOUBLE_EQ(found->ratio, 1);
    for (const ComparedRank& rank : found->ranks)
      EXPECT_DOUBLE_EQ(rank.bubble_measured, rank.bubble_simulated);
  }
  EXPECT_EQ(found->local.count, found->simulation.handoffs.local);
  EXPECT_EQ(found->hidden.count, found->simulation.handoffs.hidden);
  EXPECT_EQ(found->exposed.count, found->simulation.handoffs.exposed);
  EXPECT_EQ(found->hidden.hidden + found->hidden.exposed, found->hidden.count);
}

INSTANTIATE_TEST_SUITE_P(Families, OfEveryFamily,
                         ::testing::Values("naive", "gpipe", "1f1b", "interleaved-1f1b", "looped-bfs",
                                           "1f1b-v", "zb-h1", "zb-v", "dualpipe", "chimera"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// Two ranks, two microbatches, by hand: 0F0 0F1 0B0 0B1 | 1F0 1B0 1F1 1B1, all of 10.
MeasuredStep by_hand() {
  const auto work = [](int stage, ActionKind kind, int microbatch, int64_t start) {
    return MeasuredWork{Work{StageIndex(stage), kind, MicrobatchIndex(microbatch)}, start, start + 10, 8};
  };
  const auto wait = [](int source, int target, int microbatch, int64_t start, int64_t end) {
    return MeasuredWait{{StageIndex(source), StageIndex(target), MicrobatchIndex(microbatch),
                         source < target ? Flow::Activation : Flow::Gradient},
                        start,
                        end};
  };
  constexpr auto F = ActionKind::Forward, B = ActionKind::Backward;
  return {{{{work(0, F, 0, 100), work(0, F, 1, 110), work(0, B, 0, 133), work(0, B, 1, 155)},
            {wait(1, 0, 0, 120, 133), wait(1, 0, 1, 143, 155)}},
           {{work(1, F, 0, 112), work(1, B, 0, 122), work(1, F, 1, 133), work(1, B, 1, 143)},
            {wait(0, 1, 0, 100, 112), wait(0, 1, 1, 132, 133)}}}};
}

ComputeProgram small() {
  return generate({.name = "1f1b", .ranks = 2, .microbatches = 2}).value();
}

TEST(Compare, step_by_hand_is_told_by_hand) {
  const StatusOr<Comparison> found = compare(small(), by_hand(), {.noticed_wait_ns = 2});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->measured_ns, 65);  // 100 to 165
  EXPECT_EQ(found->simulated_ns, 60);
  EXPECT_DOUBLE_EQ(found->ratio, 65.0 / 60);
  EXPECT_EQ(found->ranks[0].busy_ns, 40);
  EXPECT_EQ(found->ranks[0].cpu_ns, 32);
  EXPECT_DOUBLE_EQ(found->ranks[0].bubble_measured, 1 - 40.0 / 65);
  EXPECT_DOUBLE_EQ(found->ranks[1].bubble_simulated, 1 - 40.0 / 60);
  // In the simulation 0F1 ends at 20 as 1B0 starts there, before 1F1 at 30; no other tensor passes while its receiver
  // starts anything.
  EXPECT_EQ(found->local.count, 0);
  EXPECT_EQ(found->hidden.count, 1);
  EXPECT_EQ(found->hidden.hidden, 1);
  EXPECT_EQ(found->exposed.count, 3);
  EXPECT_EQ(found->exposed.exposed, 3);
  EXPECT_EQ(found->exposed.exposed_ns, 13 + 12 + 12);
}

TEST(Compare, wait_that_is_noticed_is_exposed_whatever_the_simulation_says) {
  MeasuredStep step = by_hand();
  step.ranks[1].waits[1].start_ns -= 2;
  const Comparison found = compare(small(), step, {.noticed_wait_ns = 2}).value();
  EXPECT_EQ(found.hidden.count, 1);
  EXPECT_EQ(found.hidden.exposed, 1);
  EXPECT_EQ(found.hidden.exposed_ns, 3);
}

std::string refusal(const MeasuredStep& step) {
  return message(compare(small(), step).status());
}

TEST(Compare, step_of_another_program_is_refused_with_its_place) {
  MeasuredStep step = by_hand();
  std::swap(step.ranks[1].works[1], step.ranks[1].works[2]);
  EXPECT_EQ(refusal(step), "measured rank 1, work 1: expected 1B0, found 1F1");
  step = by_hand();
  step.ranks[0].works.pop_back();
  EXPECT_EQ(refusal(step), "measured rank 0: expected 4 works, found 3");
  step = by_hand();
  step.ranks.pop_back();
  EXPECT_EQ(refusal(step), "measured step: expected 2 ranks, found 1");
  step = by_hand();
  step.ranks[0].works[2].end_ns = 132;
  EXPECT_EQ(refusal(step), "measured rank 0, work 2: 0B0 from 133 to 132 ns with 8 ns of CPU time");
  step = by_hand();
  step.ranks[1].waits.pop_back();
  EXPECT_EQ(refusal(step), "measured step: nothing says how long stage 1 waited for microbatch 1 of stage 0");
}

TEST(Compare, nothing_measured_has_no_makespan) {
  EXPECT_EQ(makespan_ns({}), 0);
  EXPECT_EQ(makespan_ns({{{}, {}}}), 0);
}

TEST(AsTimeline, is_what_was_measured) {
  const Simulation timeline = as_timeline(by_hand());
  ASSERT_EQ(timeline.ranks.size(), 2u);
  EXPECT_EQ(timeline.ranks[1].actions[3].start, 143);
  EXPECT_EQ(timeline.ranks[1].busy, 40);
  EXPECT_EQ(timeline.makespan, 65);
}

}  // namespace
}  // namespace penstock::plan
