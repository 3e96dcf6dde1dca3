#include "kernels/tensor/tensor.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock::kernels {
namespace {

TEST(TensorView, knows_its_shape_and_bytes) {
  std::vector<float> values(24);
  const TensorView view(values.data(), DataType::Float32, {2, 3, 4});
  EXPECT_EQ(view.rank(), 3);
  EXPECT_EQ(view.size(0), 2);
  EXPECT_EQ(view.size(2), 4);
  EXPECT_EQ(view.elements(), 24);
  EXPECT_EQ(view.bytes(), 96);
  EXPECT_FALSE(view.empty());
  EXPECT_TRUE(TensorView().empty());
  EXPECT_EQ(TensorView(values.data(), DataType::BFloat16, {5}).bytes(), 10);
}

TEST(TensorView, rows_are_a_view_into_the_same_memory) {
  // Chunks of tokens are cut this way; a wrong stride reads a neighbour's token.
  std::vector<float> values(12);
  const TensorView view(values.data(), DataType::Float32, {4, 3});
  const TensorView middle = view.rows(1, 2);
  EXPECT_EQ(middle.f32(), values.data() + 3);
  EXPECT_EQ(middle.size(0), 2);
  EXPECT_EQ(middle.size(1), 3);
  EXPECT_EQ(view.rows(4, 0).elements(), 0);
  EXPECT_EQ(TensorView(values.data(), DataType::Float32, {0, 3}).rows(0, 0).elements(), 0);
}

TEST(TensorView, columns_are_a_view_whose_rows_stand_apart) {
  std::vector<float> values(12);
  const TensorView view(values.data(), DataType::Float32, {4, 3});
  EXPECT_TRUE(view.dense());
  const TensorView last = view.columns(1, 2);
  EXPECT_EQ(last.f32(), values.data() + 1);
  EXPECT_EQ(last.size(1), 2);
  EXPECT_EQ(last.row_stride(), 3);
  EXPECT_FALSE(last.dense());
  EXPECT_EQ(last.rows(2, 1).f32(), values.data() + 7);
  EXPECT_TRUE(view.columns(0, 3).dense());
}

TEST(TensorViewDeathTest, wrong_use_stops_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<float> values(12);
  const TensorView view(values.data(), DataType::Float32, {4, 3});
  EXPECT_DEATH(view.i32(), "check failed");
  EXPECT_DEATH(view.size(2), "check failed");
  EXPECT_DEATH(view.rows(3, 2), "check failed");
}

}  // namespace
}  // namespace penstock::kernels
