#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

TEST(Add, sums_into_a_third_tensor_or_into_one_of_the_two) {
  Rig rig;
  Random random(800);
  for (int64_t count : {1, 15, 33, 65536, 150001}) {
    Floats a = random.normal(count);
    Floats b = random.normal(count);
    Floats expected(count);
    for (int64_t i = 0; i < count; ++i) expected[i] = a[i] + b[i];
    Floats output(count + 1, -1);
    const TensorView into(output.data(), DataType::Float32, {count});
    rig->add(view(a, {count}), view(b, {count}), into);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), output.begin()));
    EXPECT_EQ(output[count], -1) << "written past the end";
    Floats first = a;
    rig->add(view(first, {count}), view(b, {count}), view(first, {count}));
    EXPECT_EQ(first, expected);
    rig->add(view(a, {count}), view(b, {count}), view(b, {count}));
    EXPECT_EQ(b, expected);
  }
}

TEST(Add, bfloat16_is_added_in_float32_and_rounded_once) {
  Rig rig;
  Random random(810);
  Floats a = random.normal(1003), b = random.normal(1003);
  Halves narrow_a(a), narrow_b(b), sum(1003);
  rig->add(narrow_a.view({1003}), narrow_b.view({1003}), sum.view({1003}));
  const Floats y = sum.widened();
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], rounded_to_bfloat16(a[i] + b[i]));
}

}  // namespace
}  // namespace penstock::kernels::testing
