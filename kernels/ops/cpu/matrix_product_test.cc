#include "kernels/ops/cpu/matrix_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/testing/packed.h"
#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::cpu {
namespace {

using testing::Floats;
using testing::Halves;
using testing::Random;

TEST(MatrixProduct, rows_have_the_same_bits_however_many_there_are) {
  // Chunks of tokens are cut at fixed places; a ragged last chunk must not change its rows.
  if (!has_row_invariant_products()) {
    // Without these kernels the same cut gives the same bits, and a job's fingerprint says so.
    EXPECT_THAT(cpu_fingerprint(), ::testing::HasSubstr("without row-invariant kernels"));
    return;
  }
  ComputeThreads threads(1);
  Context context(threads);
  Random random(1);
  for (const auto& [inner, columns] :
       {std::pair<int64_t, int64_t>{128, 352}, {352, 128}, {64, 1}, {33, 50}}) {
    const Floats left = random.normal(128 * inner);
    const Floats right = random.normal(inner * columns);
    Floats whole(128 * columns);
    const ProductShape shape{.rows = 128, .columns = columns, .inner = inner, .right = Operand::Transposed};
    context.product(shape).run(left.data(), right.data(), whole.data());
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 16, 31, 100, 120}) {
      Floats part(rows * columns);
      ProductShape fewer = shape;
      fewer.rows = rows;
      context.product(fewer).run(left.data(), right.data(), part.data());
      EXPECT_EQ(std::memcmp(part.data(), whole.data(), part.size() * sizeof(float)), 0)
          << rows << " of " << inner;
    }
  }
}

TEST(MatrixProduct, every_layout_gives_the_same_values) {
  ComputeThreads threads(1);
  Context context(threads);
  Random random(2);
  const int64_t rows = 13, columns = 9, inner = 21;
  const Floats left = random.normal(rows * inner);
  const Floats right = random.normal(inner * columns);
  Floats left_t(left.size()), right_t(right.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < inner; ++k) left_t[k * rows + r] = left[r * inner + k];
  }
  for (int64_t k = 0; k < inner; ++k) {
    for (int64_t c = 0; c < columns; ++c) right_t[c * inner + k] = right[k * columns + c];
  }
  testing::Doubles expected(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t k = 0; k < inner; ++k) {
        expected[r * columns + c] += static_cast<double>(left[r * inner + k]) * right[k * columns + c];
      }
    }
  }
  for (Operand a : {Operand::Plain, Operand::Transposed}) {
    for (Operand b : {Operand::Plain, Operand::Transposed}) {
      Floats output(rows * columns, NAN);
      context.product({rows, columns, inner, a, b})
          .run((a == Operand::Plain ? left : left_t).data(), (b == Operand::Plain ? right : right_t).data(),
               output.data());
      testing::expect_close(output, expected, 1e-5, "product");
    }
  }
}

TEST(MatrixProduct, rows_of_packed_products_have_the_same_bits_however_many_there_are) {
  ComputeThreads threads(1);
  const auto ops = make_cpu_operators(threads);
  Context context(threads);
  Random random(3);
  for (const DataType type : {DataType::Float32, DataType::BFloat16}) {
    if (!has_packed_products(type)) continue;
    for (const auto& [inner, columns] :
         {std::pair<int64_t, int64_t>{128, 352}, {352, 128}, {64, 1}, {33, 50}}) {
      Floats left = random.normal(128 * inner);
      Floats master = random.normal(inner * columns);
      Halves narrow(left);
      const void* from = type == DataType::BFloat16 ? narrow.view({128, inner}).data() : left.data();
      testing::Packed packed(*ops, {testing::view(master, {columns, inner})}, type);
      Floats whole(128 * columns);
      const ProductShape shape{
          .rows = 128, .columns = columns, .inner = inner, .right = Operand::Packed, .type = type};
      context.product(shape).run(from, packed.weight().forward(), whole.data());
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 16, 31, 100, 120}) {
        Floats part(rows * columns);
        ProductShape fewer = shape;
        fewer.rows = rows;
        context.product(fewer).run(from, packed.weight().forward(), part.data());
        EXPECT_EQ(std::memcmp(part.data(), whole.data(), part.size() * sizeof(float)), 0)
            << rows << " of " << inner << ", type " << static_cast<int>(type);
      }
    }
  }
}

TEST(MatrixProduct, bfloat16_is_summed_in_float32_and_rounded_once) {
  // 256 + 2^-8 + 2^-8 ...: in bfloat16 the small terms would never be seen.
  ComputeThreads threads(1);
  Context context(threads);
  Floats left(40, 1.0f / 256);
  left[0] = 256;
  Floats right(40, 1);
  Halves narrow_left(left);
  Halves narrow_right(right);
  Floats wide(1);
  Halves narrow(1);
  const ProductShape shape{.rows = 1, .columns = 1, .inner = 40, .type = DataType::BFloat16};
  context.product(shape).run(narrow_left.view({1, 40}).data(), narrow_right.view({40, 1}).data(),
                             wide.data());
  EXPECT_EQ(wide[0], 256.0f + 39.0f / 256);
  ProductShape rounded = shape;
  rounded.output_type = DataType::BFloat16;
  context.product(rounded).run(narrow_left.view({1, 40}).data(), narrow_right.view({40, 1}).data(),
                               narrow.view({1, 1}).data());
  EXPECT_EQ(narrow.widened()[0], rounded_to_bfloat16(wide[0]));
}

TEST(MatrixProduct, a_shape_is_made_once) {
  ComputeThreads threads(1);
  Context context(threads);
  const ProductShape shape{.rows = 4, .columns = 4, .inner = 4};
  MatrixProduct& first = context.product(shape);
  context.product({.rows = 5, .columns = 4, .inner = 4});
  EXPECT_EQ(&context.product(shape), &first);
  EXPECT_EQ(&context.made_product(shape), &first);
}

TEST(Context, scratch_that_no_host_has_is_an_error_and_not_the_end_of_the_process) {
  // The sizes come from a user's job: the executor reports them as the reason of its failure.
  ComputeThreads threads(1);
  Context context(threads);
  try {
    context.reserve_shared(int64_t{1} << 50);
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& problem) {
    EXPECT_THAT(problem.what(), ::testing::HasSubstr("no memory for scratch memory of an operation"));
  }
  EXPECT_NE(context.reserve_shared(16), nullptr);  // and it goes on
}

TEST(MatrixProduct, fingerprint_names_library_and_instruction_set) {
  // It is compared between attempts: whatever decides the bits must be in it.
  EXPECT_THAT(cpu_fingerprint(),
              ::testing::StartsWith("oneDNN " + std::to_string(dnnl_version()->major) + "."));
  EXPECT_EQ(cpu_fingerprint().find("avx512_core") != std::string::npos, has_row_invariant_products());
}

}  // namespace
}  // namespace penstock::kernels::cpu
