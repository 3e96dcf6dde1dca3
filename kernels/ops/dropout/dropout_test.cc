#include <gtest/gtest.h>

#include "base/philox.h"
#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

Floats dropped(Rig& rig, Floats x, double probability, uint64_t key) {
  const auto count = static_cast<int64_t>(x.size());
  Floats y(x.size(), NAN);
  rig->dropout(view(x, {count}), probability, key, view(y, {count}));
  return y;
}

TEST(Dropout, keeps_the_stated_share_and_scales_it_so_that_the_mean_stays) {
  Rig rig;
  constexpr int kCount = 1 << 18;
  for (const double probability : {0.1, 0.5, 0.9}) {
    const Floats y = dropped(rig, Floats(kCount, 3), probability, 77);
    double kept = 0;
    for (const float value : y) {
      if (value == 0) continue;
      ++kept;
      ASSERT_FLOAT_EQ(value, static_cast<float>(3 / (1 - probability)));
    }
    // Five deviations of the binomial distribution.
    const double slack = 5 * std::sqrt(probability * (1 - probability) / kCount);
    EXPECT_NEAR(kept / kCount, 1 - probability, slack) << probability;
  }
}

TEST(Dropout, the_mask_is_the_generators_and_does_not_depend_on_what_it_is_cut_from) {
  // Number i mod 4 of block i / 4 decides element i, in any piece, on any thread.
  Rig rig;
  for (const int count : {1, 3, 4, 17, 16384 + 5, 70001}) {
    const Floats y = dropped(rig, Floats(static_cast<size_t>(count), 1), 0.25, 123456789012345);
    for (int i = 0; i < count; ++i) {
      const bool kept = philox(123456789012345, static_cast<uint64_t>(i / 4))[i % 4] >= (1u << 30);
      ASSERT_EQ(y[i] != 0, kept) << i;
    }
  }
}

TEST(Dropout, another_key_gives_another_mask_and_the_same_key_the_same) {
  Rig rig;
  const Floats x(4096, 1);
  EXPECT_EQ(dropped(rig, x, 0.5, 1), dropped(rig, x, 0.5, 1));
  const Floats a = dropped(rig, x, 0.5, 1), b = dropped(rig, x, 0.5, 2);
  int equal = 0;
  for (size_t i = 0; i < x.size(); ++i) equal += a[i] == b[i];
  EXPECT_NEAR(equal, 2048, 5 * 32);  // independent masks agree on half
}

TEST(Dropout, probability_zero_changes_nothing_and_what_is_dropped_is_zero_even_of_infinity) {
  Rig rig;
  Random random(5);
  const Floats x = random.normal(1000);
  EXPECT_EQ(dropped(rig, x, 0, 9), x);
  for (const float value : dropped(rig, Floats(1000, INFINITY), 0.5, 9)) {
    EXPECT_TRUE(value == 0 || std::isinf(value));
  }
}

TEST(Dropout, may_write_over_its_input) {
  Rig rig;
  Random random(6);
  Floats x = random.normal(999);
  const Floats expected = dropped(rig, x, 0.3, 4);
  rig->dropout(view(x, {999}), 0.3, 4, view(x, {999}));
  EXPECT_EQ(x, expected);
}

}  // namespace
}  // namespace penstock::kernels::testing
