#include "base/safetensors/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace penstock {
namespace {

TEST(Values, every_half_is_its_definition) {
  // By the definition of binary16, with ldexp in place of bits.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 0x1f);
    const auto fraction = static_cast<double>(bits & 0x3ff);
    const float found = widened_half(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(found), (bits & 0x8000) != 0) << bits;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(found)) << bits;
      continue;
    }
    const double magnitude = exponent == 31  ? INFINITY
                             : exponent == 0 ? std::ldexp(fraction, -24)
                                             : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(std::fabs(found), magnitude) << bits;
  }
}

TEST(Values, bfloat16_is_the_nearest_with_ties_to_even) {
  EXPECT_EQ(narrowed_to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(narrowed_to_bfloat16(-2.5f), 0xc020);
  EXPECT_EQ(narrowed_to_bfloat16(1.00390625f), 0x3f80);  // half way: down to even
  EXPECT_EQ(narrowed_to_bfloat16(1.01171875f), 0x3f82);  // half way: up to even
  EXPECT_EQ(narrowed_to_bfloat16(std::nextafter(1.00390625f, 2.0f)), 0x3f81);
  EXPECT_EQ(narrowed_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);  // rounds to infinity
  EXPECT_EQ(narrowed_to_bfloat16(-INFINITY), 0xff80);
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xffffffffu}) {
    float nan = 0;
    std::memcpy(&nan, &bits, 4);
    const uint16_t narrowed = narrowed_to_bfloat16(nan);
    EXPECT_EQ(narrowed & 0x7f80, 0x7f80);
    EXPECT_NE(narrowed & 0x7f, 0);
  }
}

TEST(Values, stored_elements_widen_from_any_address) {
  const float expected[] = {1.5f, -0.25f, 3.0f};
  std::vector<std::byte> bytes(1 + sizeof(expected));
  std::memcpy(bytes.data() + 1, expected, sizeof(expected));
  std::vector<float> values(3);
  widen("F32", std::span(bytes).subspan(1), values);
  EXPECT_EQ(std::memcmp(values.data(), expected, sizeof(expected)), 0);

  for (size_t i = 0; i < 3; ++i) {
    const uint16_t narrowed = narrowed_to_bfloat16(expected[i]);
    std::memcpy(bytes.data() + 1 + 2 * i, &narrowed, 2);
  }
  widen("BF16", std::span(bytes).subspan(1, 6), values);
  EXPECT_EQ(std::memcmp(values.data(), expected, sizeof(expected)), 0);

  const uint16_t halves[] = {0x3e00, 0xb400, 0x4200};
  std::memcpy(bytes.data() + 1, halves, sizeof(halves));
  widen("F16", std::span(bytes).subspan(1, 6), values);
  EXPECT_EQ(std::memcmp(values.data(), expected, sizeof(expected)), 0);
}

TEST(Values, first_value_that_is_no_number_is_found) {
  std::vector<float> values = {0, -1, 2};
  EXPECT_EQ(first_not_finite(values), 3u);
  values[2] = NAN;
  EXPECT_EQ(first_not_finite(values), 2u);
  values[1] = -INFINITY;
  EXPECT_EQ(first_not_finite(values), 1u);
}

}  // namespace
}  // namespace penstock
