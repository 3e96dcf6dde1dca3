// Checkpoints with a seeded piece of damage: none is accepted, none crashes. 1,000 of each layout with
// PENSTOCK_TEST_SCALE=full.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/checkpoint/testing/damage.h"
#include "base/checkpoint/testing/sample.h"

namespace penstock {
namespace {

using testing::Damage;
using testing::Layout;
using testing::load_sample;
using testing::TemporaryFolder;
using testing::write_sample;

class DamagedCheckpoints : public ::testing::TestWithParam<Layout> {};

TEST_P(DamagedCheckpoints, none_is_accepted_and_the_newest_whole_one_is_used) {
  const char* scale = std::getenv("PENSTOCK_TEST_SCALE");
  const int count = scale != nullptr && std::string(scale) == "full" ? 1000 : 60;
  const auto expected = testing::sample_tensors(GetParam());
  const TemporaryFolder whole("penstock_damage_whole");
  write_sample(whole.path(), 40, GetParam());
  write_sample(whole.path(), 50, GetParam());
  ASSERT_TRUE(load_sample(whole.path("step-000000050"), GetParam()).ok());
  for (int seed = 1; seed <= count; ++seed) {
    const TemporaryFolder folder("penstock_damage_test");
    std::filesystem::copy(whole.path(), folder.path(), std::filesystem::copy_options::recursive);
    const std::string what =
        Damage(folder, "step-000000050", "step-000000040", static_cast<uint64_t>(seed)).one();
    const Status loaded = load_sample(folder.path("step-000000050"), GetParam());
    EXPECT_FALSE(loaded.ok()) << "seed " << seed << ": " << what;
    EXPECT_NE(message(loaded).find("step-000000050"), std::string::npos) << message(loaded);
    const auto newest = newest_checkpoint(folder.path(), "sample", 1000, expected);
    ASSERT_TRUE(newest.ok()) << newest.status();
    ASSERT_TRUE(newest->checkpoint.has_value()) << "seed " << seed << ": " << what;
    EXPECT_EQ(newest->checkpoint->manifest().step, 40) << "seed " << seed << ": " << what;
    ASSERT_EQ(newest->refused.size(), 1u) << "seed " << seed << ": " << what;
    EXPECT_NE(newest->refused[0].find("step-000000050"), std::string::npos) << newest->refused[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DamagedCheckpoints,
                         ::testing::Values(Layout::TwoRanks, Layout::ShardedStates, Layout::Imported));

}  // namespace
}  // namespace penstock
