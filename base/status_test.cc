#include "base/status.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

StatusOr<int> half_of(int value) {
  if (value % 2 != 0) return invalid_argument("half of {}: an even number expected", value);
  return value / 2;
}

Status quarter_of(int value, int& target) {
  PENSTOCK_ASSIGN_OR_RETURN(const int half, half_of(value));
  PENSTOCK_ASSIGN_OR_RETURN(target, half_of(half));
  return ok_status();
}

TEST(Status, makers_format_and_macros_return_early) {
  int quarter = 0;
  EXPECT_TRUE(quarter_of(12, quarter).ok());
  EXPECT_EQ(quarter, 3);
  const Status status = quarter_of(6, quarter);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(message(status), "half of 3: an even number expected");
}

TEST(Status, context_goes_in_front_and_keeps_the_code) {
  const Status status = with_context(not_found("no file x"), "job a");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(message(status), "job a: no file x");
  EXPECT_TRUE(with_context(ok_status(), "job a").ok());
}

}  // namespace
}  // namespace penstock
