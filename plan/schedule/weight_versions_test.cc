#include "plan/schedule/weight_versions.h"

#include <gtest/gtest.h>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

std::vector<WeightVersionsHeld> held(const ScheduleRequest& request) {
  const LoweredProgram program = lower(generate(request).value()).value();
  std::vector<WeightVersionsHeld> of_ranks;
  for (const RankProgram& rank : program.ranks) of_ranks.push_back(weight_versions_held(rank));
  return of_ranks;
}

TEST(WeightVersionsHeld, pipedream_holds_p_minus_s_versions_and_its_forwards_read_the_newest) {
  // Published: "num_versions = num_warmup_minibatches + 1".
  EXPECT_EQ(held({.name = "pipedream", .ranks = 4, .microbatches = 1, .updates = 12}),
            (std::vector<WeightVersionsHeld>{{4, 1}, {3, 1}, {2, 1}, {1, 1}}));
}

TEST(WeightVersionsHeld, an_update_of_several_microbatches_takes_fewer_versions) {
  // Stage 0 of 4 has 3 microbatches under way: they reach back over one update of 4, over two of 2.
  EXPECT_EQ(held({.name = "pipedream", .ranks = 4, .microbatches = 4, .updates = 6})[0].by_all, 2);
  EXPECT_EQ(held({.name = "pipedream", .ranks = 4, .microbatches = 2, .updates = 6})[0].by_all, 3);
}

TEST(WeightVersionsHeld, pipedream_2bw_holds_two_versions_on_every_rank) {
  for (const int m : {3, 8}) {
    EXPECT_EQ(held({.name = "pipedream-2bw", .ranks = 3, .microbatches = m, .updates = 5}),
              std::vector<WeightVersionsHeld>(3, {2, 2}));
  }
  // With all of an update under way, forwards belong to the next one and find its version to be the newest.
  EXPECT_EQ(held({.name = "pipedream-2bw", .ranks = 3, .microbatches = 2, .updates = 5}),
            (std::vector<WeightVersionsHeld>{{2, 1}, {2, 2}, {2, 2}}));
}

TEST(WeightVersionsHeld, a_synchronous_program_reads_the_newest_alone) {
  EXPECT_EQ(held({.name = "zb-h1", .ranks = 3, .microbatches = 4, .updates = 3}),
            std::vector<WeightVersionsHeld>(3, {1, 1}));
  EXPECT_EQ(held({.name = "pipedream", .ranks = 3, .microbatches = 4, .updates = 1}),
            std::vector<WeightVersionsHeld>(3, {1, 1}));
}

}  // namespace
}  // namespace penstock::plan
