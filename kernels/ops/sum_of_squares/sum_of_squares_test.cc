#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

TEST(SumOfSquares, is_the_float64_sum) {
  Rig rig;
  Random random(700);
  for (int64_t count : {1, 5, 16, 31, 65536, 65537, 200001}) {
    Floats x = random.normal(count);
    double expected = 0;
    for (float each : x) expected += static_cast<double>(each) * each;
    EXPECT_NEAR(rig->sum_of_squares(view(x, {count})), expected, 1e-12 * expected) << count;
  }
  Floats none;
  EXPECT_EQ(rig->sum_of_squares(TensorView(none.data(), DataType::Float32, {0})), 0);
}

TEST(SumOfSquares, large_and_lost_values_are_seen) {
  // The square of 1e30 overflows float32; a gradient that is not a number must not vanish in the norm.
  Rig rig;
  Floats x(100, 1e30f);
  EXPECT_NEAR(rig->sum_of_squares(view(x, {100})), 1e62, 1e56);
  x[99] = NAN;
  EXPECT_TRUE(std::isnan(rig->sum_of_squares(view(x, {100}))));
}

TEST(SumOfSquares, bits_do_not_depend_on_threads) {
  Random random(710);
  Floats x = random.normal(300007);
  expect_same_bits_for_any_thread_count([&](Operators& ops) {
    const double sum = ops.sum_of_squares(view(x, {300007}));
    Floats bits(2);
    std::memcpy(bits.data(), &sum, sizeof(sum));
    return std::vector<Floats>{bits};
  });
}

}  // namespace
}  // namespace penstock::kernels::testing
