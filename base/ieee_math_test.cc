#include "base/ieee_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace penstock {
namespace {

constexpr double kUlp = 0x1p-52;

TEST(IeeeMath, natural_log_is_that_of_the_library) {
  std::mt19937_64 engine(5);
  std::uniform_real_distribution<double> exponent(-300, 300);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::pow(10, exponent(engine));
    EXPECT_NEAR(natural_log(x), std::log(x), 1e-15 * std::max(1.0, std::abs(std::log(x)))) << x;
  }
  for (double x : {1.0, std::nextafter(1.0, 0), std::nextafter(1.0, 2), 2.0, 0.5, M_SQRT1_2, M_SQRT2}) {
    EXPECT_NEAR(natural_log(x), std::log(x), 2e-16) << x;
  }
  EXPECT_EQ(natural_log(0), -INFINITY);
  EXPECT_EQ(natural_log(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(natural_log(-1)) && std::isnan(natural_log(NAN)));
}

TEST(IeeeMath, exponential_is_within_two_units_of_the_last_place) {
  std::mt19937_64 engine(6);
  std::uniform_real_distribution<double> distribution(-700, 700);
  for (int i = 0; i < 20000; ++i) {
    const double x = distribution(engine);
    EXPECT_NEAR(exponential(x), std::exp(x), 2 * kUlp * std::exp(x)) << x;
  }
  EXPECT_EQ(exponential(0), 1);
  EXPECT_EQ(exponential(710), INFINITY);
  EXPECT_EQ(exponential(-800), 0);
  EXPECT_TRUE(std::isnan(exponential(NAN)));
}

TEST(IeeeMath, sine_and_cosine_hold_over_every_position_of_a_sequence) {
  std::mt19937_64 engine(7);
  std::uniform_real_distribution<double> distribution(-0x1p20, 0x1p20);
  for (int i = 0; i < 20000; ++i) {
    // Small angles, whole positions and any angle.
    for (const double x :
         {distribution(engine) * 0x1p-20, std::floor(distribution(engine)), distribution(engine)}) {
      EXPECT_NEAR(sine(x), std::sin(x), kUlp) << x;
      EXPECT_NEAR(cosine(x), std::cos(x), kUlp) << x;
    }
  }
  // Next to multiples of pi/2 almost all digits cancel.
  for (int quadrant = 1; quadrant < 1000; ++quadrant) {
    const double x = quadrant * M_PI_2;
    EXPECT_NEAR(sine(x), std::sin(x), kUlp) << x;
    EXPECT_NEAR(cosine(x), std::cos(x), kUlp) << x;
  }
  EXPECT_EQ(sine(0), 0);
  EXPECT_EQ(cosine(0), 1);
}

}  // namespace
}  // namespace penstock
