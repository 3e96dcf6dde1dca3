// The simulator against one that moves a clock tick by tick and looks
// at every rank, on random programs and costs.
#include <gtest/gtest.h>

#include <map>

#include "plan/schedule/families.h"
#include "plan/simulation/simulate.h"
#include "plan/verification/testing/random_programs.h"

namespace penstock::plan {
namespace {

using judging::draw;
using judging::Random;

class TickByTick {
 public:
  TickByTick(const ComputeProgram& program, const SimulationCosts& costs)
      : program_(program), costs_(costs) {}

  // Start times, [rank][position].
  std::vector<std::vector<Ticks>> run() {
    std::vector<std::vector<Ticks>> starts(program_.ranks);
    std::vector<Ticks> busy_until(program_.ranks, 0);
    size_t left = 0;
    for (const auto& actions : program_.actions) left += actions.size();
    for (Ticks now = 0; left > 0; ++now) {
      for (int rank = 0; rank < program_.ranks; ++rank) {
        const size_t next = starts[rank].size();
        if (busy_until[rank] > now || next == program_.actions[rank].size()) continue;
        const Action& action = program_.actions[rank][next];
        if (!is_there(action.work, now) || (action.overlapped && !is_there(*action.overlapped, now)))
          continue;
        busy_until[rank] = now + duration(action);
        end_[action.work] = busy_until[rank];
        if (action.overlapped) end_[*action.overlapped] = busy_until[rank];
        starts[rank].push_back(now);
        --left;
      }
    }
    return starts;
  }

 private:
  bool ended(int stage, ActionKind kind, const Work& consumer, Ticks now) const {
    const auto end = end_.find({StageIndex(stage), kind, consumer.microbatch});
    if (end == end_.end()) return false;
    const bool is_remote = program_.rank_of(StageIndex(stage), consumer.microbatch) !=
                           program_.rank_of(consumer.stage, consumer.microbatch);
    return end->second + (is_remote ? costs_.latency : 0) <= now;
  }

  bool is_there(const Work& work, Ticks now) const {
    const int stage = work.stage.value;
    if (work.kind == ActionKind::WeightGradient) return true;
    if (work.kind == ActionKind::Forward)
      return stage == 0 || ended(stage - 1, ActionKind::Forward, work, now);
    return stage == program_.stages() - 1 || ended(stage + 1, ActionKind::Backward, work, now) ||
           ended(stage + 1, ActionKind::InputGradient, work, now);
  }

  Ticks duration(const Work& work) const {
    const StageCosts& of = costs_.stages[work.stage.value];
    return (work.kind == ActionKind::Forward ? of.forward : 0) +
           (starts_backward(work.kind) ? of.input_gradient : 0) +
           (ends_backward(work.kind) ? of.weight_gradient : 0);
  }

  Ticks duration(const Action& action) const {
    if (!action.overlapped) return duration(action.work);
    return costs_.overlapped_pair > 0 ? costs_.overlapped_pair
                                      : duration(action.work) + duration(*action.overlapped);
  }

  const ComputeProgram& program_;
  const SimulationCosts& costs_;
  std::map<Work, Ticks> end_;
};

TEST(SimulationAgreement, start_of_every_action_is_that_of_a_clock_moved_tick_by_tick) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const ComputeProgram program = judging::random_program(random);
    SimulationCosts costs;
    costs.latency = draw(random, 4);
    costs.overlapped_pair = draw(random, 2) * 5;
    for (int stage = 0; stage < program.stages(); ++stage) {
      costs.stages.push_back({1 + draw(random, 5), 1 + draw(random, 5), 1 + draw(random, 5)});
    }
    const std::vector<std::vector<Ticks>> expected = TickByTick(program, costs).run();
    const StatusOr<Simulation> played = simulate(program, costs);
    ASSERT_TRUE(played.ok()) << played.status() << " seed " << seed;
    for (int rank = 0; rank < program.ranks; ++rank) {
      const RankTimeline& timeline = played->ranks[rank];
      std::vector<Ticks> starts;
      for (const TimedAction& timed : timeline.actions) starts.push_back(timed.start);
      ASSERT_EQ(starts, expected[rank]) << "seed " << seed << " rank " << rank;
      ASSERT_EQ(timeline.busy + timeline.idle_warm_up + timeline.idle_cool_down + timeline.idle_dependency +
                    timeline.idle_transfer,
                played->makespan)
          << "seed " << seed << " rank " << rank;
    }
  }
}

TEST(SimulationAgreement, program_of_a_large_cluster_is_played) {
  // 262,144 actions: a simulator that looks at every rank for every event would take minutes.
  const ComputeProgram program = *generate({"interleaved-1f1b", 64, 512, 4});
  const StatusOr<Simulation> played = simulate(program, uniform_costs(program.stages(), {1, 1, 1}));
  ASSERT_TRUE(played.ok()) << played.status();
  EXPECT_EQ(played->makespan, 3 * (512 * 4 + 63));
}

}  // namespace
}  // namespace penstock::plan
