#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "coordinator/core/testing/simulation/simulation.h"

namespace penstock::coordinator {
namespace {

constexpr int kSeeds = 400;
constexpr int kEvents = 400;

using Trace = testing::Simulation::Trace;

// PENSTOCK_SEED=n replays one history and tells it; PENSTOCK_SEEDS=n plays that many.
TEST(Simulation, whatever_happens_the_promises_of_the_core_hold) {
  const char* replay = std::getenv("PENSTOCK_SEED");
  const char* more = std::getenv("PENSTOCK_SEEDS");
  const uint64_t first = replay ? std::strtoull(replay, nullptr, 10) : 1;
  const uint64_t last = replay ? first : more ? std::strtoull(more, nullptr, 10) : kSeeds;
  testing::Tally seen;
  for (uint64_t seed = first; seed <= last; ++seed) {
    testing::Simulation(seed, seen, replay ? Trace::On : Trace::Off).run(kEvents);
    if (HasFailure()) FAIL() << "replay with PENSTOCK_SEED=" << seed;
  }
  std::cout << seen.succeeded << " jobs succeeded, " << seen.succeeded_side_by_side
            << " of them with several pipelines, " << seen.assignments << " ranks were assigned, "
            << seen.from_checkpoints << " of them from checkpoints, " << seen.begun_with_another
            << " from another job's, with which " << seen.succeeded_from_another << " jobs succeeded, "
            << seen.recuts << " jobs were resumed with other ranks, " << seen.moves << " times layers moved, "
            << seen.moves_undone << " of them back, " << seen.crashes << " crashes, "
            << seen.moves_interrupted << " of them while a job moved\n";
  if (replay) return;
  // A world in which nothing happens proves nothing.
  EXPECT_GT(seen.succeeded, kSeeds / 2);
  EXPECT_GT(seen.succeeded_side_by_side, kSeeds / 4);
  EXPECT_GT(seen.crashes, kSeeds / 2);
  EXPECT_GT(seen.assignments, 2 * kSeeds);
  EXPECT_GT(seen.from_checkpoints, kSeeds / 10);
  EXPECT_GT(seen.begun_with_another, kSeeds / 10);
  EXPECT_GT(seen.succeeded_from_another, kSeeds / 10);
  EXPECT_GT(seen.recuts, kSeeds / 20);
  EXPECT_GT(seen.traces_seen, kSeeds);
  EXPECT_GT(seen.moves, kSeeds / 4);
  EXPECT_GT(seen.moves_undone, kSeeds / 20);
  EXPECT_GT(seen.moves_interrupted, kSeeds / 100);
  EXPECT_GT(seen.placed_beside_cordons, kSeeds / 10);
}

}  // namespace
}  // namespace penstock::coordinator
