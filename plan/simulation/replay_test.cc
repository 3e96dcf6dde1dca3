#include "plan/simulation/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

class RandomCosts {
 public:
  explicit RandomCosts(uint32_t seed) : engine_(seed) {}

  SimulationCosts of(const ComputeProgram& program) {
    SimulationCosts costs;
    costs.latency = below(4);
    for (int stage = 0; stage < program.stages(); ++stage) {
      StageCosts& times = costs.stages.emplace_back(StageCosts{below(50), below(50), below(50)});
      if (below(2) == 0) times.backward = below(100);
    }
    if (below(2) == 0) costs.overlapped_pair = below(80);
    for (int rank = 0; rank < program.ranks && program.updates == 1 && costs.latency > 1; ++rank)
      costs.updates.push_back(below(100));
    return costs;
  }

 private:
  Ticks below(Ticks limit) { return std::uniform_int_distribution<Ticks>(0, limit - 1)(engine_); }

  std::mt19937 engine_;
};

std::vector<ComputeProgram> programs() {
  std::vector<ComputeProgram> programs;
  for (const std::string& name : schedule_names()) {
    for (const auto& [ranks, microbatches] :
         {std::pair(1, 3), std::pair(2, 1), std::pair(4, 6), std::pair(6, 5)}) {
      for (const int updates : {1, 3}) {
        StatusOr<ComputeProgram> program =
            generate({.name = name, .ranks = ranks, .microbatches = microbatches, .updates = updates});
        if (program.ok()) programs.push_back(*std::move(program));
      }
    }
  }
  return programs;
}

TEST(Replay, under_any_costs_every_schedule_takes_as_long_as_the_simulation_says) {
  RandomCosts random(1);
  int played = 0;
  for (const ComputeProgram& program : programs()) {
    StatusOr<Replay> replay = Replay::of(program);
    ASSERT_TRUE(replay.ok()) << replay.status();
    for (int i = 0; i < 10; ++i, ++played) {
      const SimulationCosts costs = random.of(program);
      const StatusOr<Simulation> simulation = simulate(program, costs);
      ASSERT_TRUE(simulation.ok()) << simulation.status();
      ASSERT_TRUE(replay->set_costs(costs).ok());
      ASSERT_EQ(replay->play(), simulation->makespan) << program.schedule << " on " << program.ranks;
      ASSERT_EQ(replay->busy(), program.ranks * simulation->makespan - simulation->idle_total);
    }
  }
  EXPECT_GT(played, 1'000);
}

TEST(Replay, a_slowest_chain_is_as_long_as_its_play_and_never_longer_than_another) {
  // What a search rules out by a chain would be lost for good were one too long.
  RandomCosts random(2);
  for (const ComputeProgram& program : programs()) {
    StatusOr<Replay> replay = Replay::of(program);
    ASSERT_TRUE(replay.ok()) << replay.status();
    std::vector<Replay::Chain> chains;
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(replay->set_costs(random.of(program)).ok());
      const Ticks makespan = replay->play();
      for (const Replay::Chain& chain : chains) ASSERT_LE(replay->length_of(chain), makespan);
      chains.push_back(replay->slowest_chain());
      ASSERT_EQ(replay->length_of(chains.back()), makespan) << program.schedule;
    }
  }
}

TEST(Replay, costs_that_it_cannot_play_are_refused) {
  StatusOr<Replay> replay = Replay::of(*generate({.name = "1f1b", .ranks = 2, .microbatches = 4}));
  ASSERT_TRUE(replay.ok()) << replay.status();
  const auto refusal = [&](const SimulationCosts& costs) { return message(replay->set_costs(costs)); };
  EXPECT_THAT(refusal(uniform_costs(3, {})), HasSubstr("expected those of 2 stages, found 3"));
  SimulationCosts costs = uniform_costs(2, {});
  costs.updates = {1};
  EXPECT_THAT(refusal(costs), HasSubstr("updates: expected those of 2 ranks before one step, found 1"));
  costs.updates.clear();
  costs.ticks_per_message = 1;
  EXPECT_THAT(refusal(costs), HasSubstr("latency alone"));
  EXPECT_THAT(refusal(uniform_costs(2, {-1, 1, 1})), HasSubstr("expected 0 or more, found -1"));
  EXPECT_THAT(refusal(uniform_costs(2, {Ticks{1} << 60, 1, 1})), HasSubstr("longer than can be counted"));
  EXPECT_EQ(refusal(uniform_costs(2, {Ticks{1} << 58, 1, 1})), "");
}

TEST(Replay, a_program_that_stops_is_refused) {
  ComputeProgram program = *generate({.name = "1f1b", .ranks = 2, .microbatches = 2});
  std::swap(program.actions[0].front(), program.actions[0].back());
  EXPECT_THAT(message(Replay::of(program).status()), HasSubstr("the program stops on rank 0 before 0B1"));
}

}  // namespace
}  // namespace penstock::plan
