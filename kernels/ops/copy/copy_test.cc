#include <gtest/gtest.h>

#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {
namespace {

TEST(Copy, fill_writes_all_elements_and_no_more) {
  Rig rig;
  for (int64_t count : {1, 15, 17, 131072, 300001}) {
    Floats x(count + 1, -1);
    rig->fill(TensorView(x.data(), DataType::Float32, {count}), 2.5f);
    EXPECT_EQ(std::count(x.begin(), x.end(), 2.5f), count);
    EXPECT_EQ(x[count], -1);
  }
}

TEST(Copy, copies_values_of_any_type) {
  Rig rig;
  Random random(900);
  Floats source = random.normal(300001);
  Floats target(300001);
  rig->copy(view(source, {300001}), view(target, {300001}));
  EXPECT_EQ(source, target);
  std::vector<int32_t> tokens = random.below(100, 77);
  std::vector<int32_t> copied(77);
  rig->copy(view(tokens), view(copied));
  EXPECT_EQ(tokens, copied);
}

TEST(CopyDeathTest, another_type_or_size_stops_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Floats source(8);
  Floats shorter(7);
  std::vector<int32_t> tokens(8);
  EXPECT_DEATH(Rig(1)->copy(view(source, {8}), view(shorter, {7})), "target must have 8 elements");
  EXPECT_DEATH(Rig(1)->copy(view(source, {8}), view(tokens)), "target must have 8 elements of type 0");
}

}  // namespace
}  // namespace penstock::kernels::testing
