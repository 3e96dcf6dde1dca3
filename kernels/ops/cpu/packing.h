// Brings the operands of matrix products into the layouts that the kernels read without a copy of their own
// (packed_weight.h describes the blocked one).
#pragma once

#include <span>

#include "kernels/ops/packed_weight.h"
#include "kernels/tensor/bfloat16.h"

namespace penstock::kernels::cpu {

// Rounds rows [row, row + count) of the weight, which stand at `rows` [count, weight.in], into both operands of
// `weight`. Different rows may be packed at the same time.
void pack_weight_rows(const float* rows, int64_t row, int64_t count, const PackedWeight& weight);

// Rows of activations [tokens, columns], dense, as a right operand with inner = filled >= tokens, zeros behind the
// tokens: `packed` has packed_elements(filled, columns).
void pack_rows(const float* from, int64_t tokens, int64_t filled, int64_t columns, float* packed);
void pack_rows(const BFloat16* from, int64_t tokens, int64_t filled, int64_t columns, BFloat16* packed);

// `columns` columns of a matrix, and how they become the rows of a left operand.
struct ColumnBlock {
  int64_t stride = 0;  // from row to row of the matrix
  int64_t tokens = 0;
  int64_t filled = 0;  // >= tokens: the result is as long, with zeros behind the tokens
  int64_t columns = 0;
  std::span<const char> ahead = {};  // what comes into the cache meanwhile
};
// to [columns, filled] = their transpose.
void transpose_columns(const float* from, const ColumnBlock& block, float* to);
void transpose_columns(const BFloat16* from, const ColumnBlock& block, BFloat16* to);

}  // namespace penstock::kernels::cpu
