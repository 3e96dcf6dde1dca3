#include "kernels/tensor/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace penstock::kernels {
namespace {

uint16_t rounded(uint32_t bits) {
  return to_bfloat16(std::bit_cast<float>(bits)).bits;
}

TEST(BFloat16, rounds_to_nearest_and_ties_to_even) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(rounded(0x3f807fff), 0x3f80);  // below the middle
  EXPECT_EQ(rounded(0x3f808000), 0x3f80);  // the middle: to the even one below
  EXPECT_EQ(rounded(0x3f808001), 0x3f81);
  EXPECT_EQ(rounded(0x3f818000), 0x3f82);  // the middle: to the even one above
  EXPECT_EQ(rounded(0x3fff8000), 0x4000);  // the carry reaches the exponent
  EXPECT_EQ(rounded(0xbf818000), 0xbf82);
}

TEST(BFloat16, keeps_zeros_and_small_numbers) {
  EXPECT_EQ(to_bfloat16(0.0f).bits, 0);
  EXPECT_EQ(to_bfloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(rounded(0x00010000), 1);  // a subnormal is not flushed
  EXPECT_EQ(rounded(0x00008000), 0);
  EXPECT_EQ(rounded(0x00008001), 1);
}

TEST(BFloat16, overflow_is_infinite_and_not_a_number_stays_so) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_bfloat16(infinity).bits, 0x7f80);
  EXPECT_EQ(to_bfloat16(-infinity).bits, 0xff80);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::nanf("")))));
  EXPECT_EQ(rounded(0x7f800001), 0x7fc0);  // its payload would be lost and leave infinity
  EXPECT_EQ(rounded(0xffffffff), 0xffff);
}

TEST(BFloat16, every_value_comes_back) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(to_float(to_bfloat16(wide))));
    } else {
      ASSERT_EQ(to_bfloat16(wide).bits, bits);
    }
  }
}

}  // namespace
}  // namespace penstock::kernels
