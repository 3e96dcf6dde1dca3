// The weight of a linear layer as its two products read it: rounded to the type of the activations and, where the
// CPU has the kernels for it, in their blocked layout. Made from the float32 master once a step.
//
// Layout, [out, in] the weight: first `forward`, the right operand of x weight^T (inner = in, columns = out), then
// `backward`, that of output_gradient weight (inner = out, columns = in). Each is, for 64 columns after 64, [inner,
// 64], in bfloat16 with two values of `inner` side by side; `inner` is rounded up to a register's worth (16 float32,
// 32 bfloat16) and columns to 64, and what is added is zero. Without those kernels the same memory holds the
// weight as it is, [out, in].
//
// A view: owns nothing. The memory starts as zeros and is 64-byte aligned.
#pragma once

#include <cstdint>

#include "kernels/tensor/tensor.h"

namespace penstock::kernels {

struct PackedWeight {
  int64_t out = 0;
  int64_t in = 0;
  DataType type = DataType::Float32;
  void* data = nullptr;

  void* forward() const { return data; }
  void* backward() const;
};

// Where a parameter stands in a packed weight that may hold several, one after another: rows [first_row, ..).
struct PackedRows {
  PackedWeight weight;  // without data: none
  int64_t first_row = 0;
};

// Elements of a right operand [inner, columns] of a product in the blocked layout.
int64_t packed_elements(int64_t inner, int64_t columns, DataType type);
// Of both operands; a multiple of 64. The same on every CPU.
int64_t packed_weight_bytes(int64_t out, int64_t in, DataType type);

}  // namespace penstock::kernels
