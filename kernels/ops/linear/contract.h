// Linear layer without bias; the weight lies as Hugging Face stores it, [out, in].
//
//   output = x weight^T
//   x_gradient = output_gradient weight, written or added
//   weight_gradient += output_gradient^T x
//
// x, output and their gradients are float32 or bfloat16, summed in float32; the weight gradient is float32. Weights
// that read the same x are one packed weight and one product; their gradients stay apart.
//
// Order: pieces are 128 tokens (output, x_gradient) or 128 output features (weight_gradient), whatever the
// thread count. An element of the weight gradient is one sum over each 512 tokens of the call, added to what was
// there in token order.
#pragma once

#include <span>

#include "kernels/ops/expect.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels {

struct LinearShape {
  int64_t tokens = 0;
  int64_t in = 0;
  int64_t out = 0;
};

// x (or its gradient) [T, in], weight (or its gradient) [out, in], y (output or its gradient) [T, out].
inline LinearShape linear_shape(const TensorView& x, const TensorView& weight, const TensorView& y) {
  const LinearShape shape{x.size(0), weight.size(1), weight.size(0)};
  expect_matrix(x, shape.tokens, shape.in, "x");
  expect_matrix(weight, shape.out, shape.in, "weight");
  expect_matrix(y, shape.tokens, shape.out, "output");
  return shape;
}

namespace cpu {
class Context;
void linear(Context& context, TensorView x, TensorView weight, TensorView output);
void linear_input_gradient(Context& context, TensorView output_gradient, TensorView weight,
                           TensorView x_gradient, Operators::Accumulate accumulate);
void linear_weight_gradient(Context& context, TensorView output_gradient, TensorView x,
                            TensorView weight_gradient);
void linear(Context& context, TensorView x, const PackedWeight& weight, TensorView output, TensorView added);
void linear_input_gradient(Context& context, TensorView output_gradient, const PackedWeight& weight,
                           TensorView x_gradient);
void linear_weight_gradient(Context& context, TensorView output_gradient, TensorView x,
                            std::span<const TensorView> weight_gradients);
}  // namespace cpu

}  // namespace penstock::kernels
