#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "coordinator/core/testing/simulation.h"

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
  int succeeded = 0;
  int side_by_side = 0;
  int crashes = 0;
  int assignments = 0;
  int from_checkpoints = 0;
  int begun_with_another = 0;
  int succeeded_from_another = 0;
  int recuts = 0;
  int traces_seen = 0;
  int moves = 0;
  int moves_undone = 0;
  int placed_beside_cordons = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    testing::Simulation simulation(seed, replay ? Trace::On : Trace::Off);
    simulation.run(kEvents);
    succeeded += simulation.jobs_succeeded();
    side_by_side += simulation.jobs_of_several_pipelines_succeeded();
    crashes += simulation.crashes();
    assignments += simulation.assignments();
    from_checkpoints += simulation.restarts_from_checkpoints();
    begun_with_another += simulation.begun_with_another();
    succeeded_from_another += simulation.succeeded_from_another();
    recuts += simulation.recuts();
    traces_seen += simulation.traces_seen();
    moves += simulation.moves();
    moves_undone += simulation.moves_undone();
    placed_beside_cordons += simulation.placed_beside_cordons();
    if (HasFailure()) FAIL() << "replay with PENSTOCK_SEED=" << seed;
  }
  std::cout << succeeded << " jobs succeeded, " << side_by_side << " of them with several pipelines, "
            << assignments << " ranks were assigned, " << from_checkpoints << " of them from checkpoints, "
            << begun_with_another << " from another job's, with which " << succeeded_from_another
            << " jobs succeeded, " << recuts << " jobs were resumed with other ranks, " << moves
            << " times layers moved, " << moves_undone << " of them back, " << crashes << " crashes\n";
  if (replay) return;
  // A world in which nothing happens proves nothing.
  EXPECT_GT(succeeded, kSeeds / 2);
  EXPECT_GT(side_by_side, kSeeds / 4);
  EXPECT_GT(crashes, kSeeds / 2);
  EXPECT_GT(assignments, 2 * kSeeds);
  EXPECT_GT(from_checkpoints, kSeeds / 10);
  EXPECT_GT(begun_with_another, kSeeds / 10);
  EXPECT_GT(succeeded_from_another, kSeeds / 10);
  EXPECT_GT(recuts, kSeeds / 20);
  EXPECT_GT(traces_seen, kSeeds);
  EXPECT_GT(moves, kSeeds / 4);
  EXPECT_GT(moves_undone, kSeeds / 20);
  EXPECT_GT(placed_beside_cordons, kSeeds / 10);
}

}  // namespace
}  // namespace penstock::coordinator
