#include "plan/render/human.h"

#include <gtest/gtest.h>

#include <limits>

namespace penstock::plan {
namespace {

TEST(HumanDuration, every_size_has_its_own_unit) {
  EXPECT_EQ(human_duration(0.0015), "1.5ms");
  EXPECT_EQ(human_duration(0.35), "350ms");
  EXPECT_EQ(human_duration(4), "4s");
  EXPECT_EQ(human_duration(4.25), "4.3s");
  EXPECT_EQ(human_duration(42.4), "42s");
  EXPECT_EQ(human_duration(192), "3m12s");
  EXPECT_EQ(human_duration(2 * 3600 + 5 * 60 + 59), "2h05m");
  EXPECT_EQ(human_duration(3 * 86400 + 4 * 3600), "3d04h");
}

TEST(HumanDuration, rounding_never_shows_a_full_smaller_unit) {
  // 0.9999 s must not become "1000ms", nor 9.97 s "10.0s".
  EXPECT_EQ(human_duration(0.9999), "1s");
  EXPECT_EQ(human_duration(9.97), "10s");
  EXPECT_EQ(human_duration(59.7), "1m00s");
}

TEST(HumanDuration, what_is_no_duration_is_zero) {
  EXPECT_EQ(human_duration(-3), "0s");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::quiet_NaN()), "0s");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::infinity()), "1000000000d00h");
}

TEST(HumanBytes, three_digits_in_binary_units) {
  EXPECT_EQ(human_bytes(0), "0B");
  EXPECT_EQ(human_bytes(999), "999B");
  EXPECT_EQ(human_bytes(1536), "1.50KiB");
  EXPECT_EQ(human_bytes(24536679), "23.4MiB");
  EXPECT_EQ(human_bytes(std::numeric_limits<int64_t>::max()), "8.00EiB");
}

TEST(HumanCount, three_digits_in_decimal_units) {
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(999.7), "1.00k");
  EXPECT_EQ(human_count(12345), "12.3k");
  EXPECT_EQ(human_count(4.56e6), "4.56M");
  EXPECT_EQ(human_count(std::numeric_limits<double>::quiet_NaN()), "-");
}

TEST(HumanCount, past_all_units_it_still_fits_a_column) {
  EXPECT_EQ(human_count(-1.234e300), "-1.23e+285P");
}

TEST(Counted, one_has_no_plural) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "microbatch"), "1 microbatch");
  EXPECT_EQ(counted(8, "microbatch"), "8 microbatches");
}

TEST(BoundedDecimal, an_absurd_number_does_not_widen_its_column) {
  EXPECT_EQ(bounded_decimal(5.54517, 4), "5.5452");
  EXPECT_EQ(bounded_decimal(-1e300, 4), "-1.0000e+300");
  EXPECT_EQ(bounded_decimal(std::numeric_limits<double>::quiet_NaN(), 4), "nan");
}

}  // namespace
}  // namespace penstock::plan
