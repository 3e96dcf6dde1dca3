// Optimizer steps one behind another, with a barrier between them and without one: what zb-h2 is for.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "plan/schedule/families.h"
#include "plan/schedule/post_validation.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {
namespace {

Simulation play(const std::string& schedule, int ranks, int microbatches, int steps) {
  const ComputeProgram program =
      *generate({.name = schedule, .ranks = ranks, .microbatches = microbatches, .updates = steps});
  return *simulate(program, uniform_costs(program.stages(), {1, 1, 1}));
}

// F = I = W = 1, no latency. Measured with two timing models apart from this one.
struct Chain {
  const char* schedule;
  int ranks;
  int microbatches;
  int steps;
  Ticks without_barrier;
  Ticks with_barrier;
};

constexpr Chain kChains[] = {
    {"1f1b", 4, 8, 1, 33, 33},     {"1f1b", 4, 8, 2, 66, 66},     {"1f1b", 4, 8, 4, 132, 132},
    {"zb-h1", 4, 8, 2, 54, 54},    {"zb-h2", 4, 8, 1, 27, 27},    {"zb-h2", 4, 8, 2, 51, 54},
    {"zb-h2", 4, 8, 4, 99, 108},   {"1f1b", 8, 16, 2, 138, 138},  {"zb-h1", 8, 16, 1, 55, 55},
    {"zb-h1", 8, 16, 4, 220, 220}, {"zb-h2", 8, 16, 2, 103, 110}, {"zb-h2", 8, 16, 4, 199, 220},
};

TEST(ChainedSteps, take_the_time_that_was_measured_elsewhere) {
  for (const Chain& chain : kChains) {
    SCOPED_TRACE(testing::Message() << chain.schedule << " P=" << chain.ranks << " steps " << chain.steps);
    EXPECT_EQ(play(chain.schedule, chain.ranks, chain.microbatches, chain.steps).makespan,
              chain.without_barrier);
    EXPECT_EQ(play(chain.schedule, chain.ranks, chain.microbatches, 1).makespan * chain.steps,
              chain.with_barrier);
  }
}

// The actions of step `step` of a rank; every rank has as many in each.
std::span<const TimedAction> actions_of(const RankTimeline& rank, int step, int steps) {
  const size_t each = rank.actions.size() / static_cast<size_t>(steps);
  return std::span(rank.actions).subspan(each * static_cast<size_t>(step), each);
}

TEST(ChainedSteps, nobody_waits_for_a_norm_that_travels_in_no_time) {
  // The running sum reaches each rank before its next step begins, and the whole one before its validation.
  constexpr int kSteps = 3;
  for (const char* schedule : {"zb-h2", "zb-h1", "1f1b"}) {
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << schedule << " P=" << ranks);
      const std::vector<int> points =
          validation_points(*generate({.name = schedule, .ranks = ranks, .microbatches = 2 * ranks}));
      const Simulation played = play(schedule, ranks, 2 * ranks, kSteps);
      for (int step = 0; step + 1 < kSteps; ++step) {
        Ticks known = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          known = std::max(known, actions_of(played.ranks[rank], step, kSteps).back().end);
          EXPECT_LE(known, actions_of(played.ranks[rank], step + 1, kSteps).front().start) << "rank " << rank;
        }
        for (int rank = 0; rank < ranks; ++rank) {
          const auto next = actions_of(played.ranks[rank], step + 1, kSteps);
          EXPECT_LE(known, next[static_cast<size_t>(points[rank])].start) << "rank " << rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::plan
