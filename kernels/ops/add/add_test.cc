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

}  // namespace
}  // namespace penstock::kernels::testing
