// Linear layer without bias; the weight lies as Hugging Face stores it, [out, in].
//
//   output = x weight^T
//   x_gradient = output_gradient weight, written or added
//   weight_gradient += output_gradient^T x
//
// Order: pieces are 128 tokens (output, x_gradient) or 128 output features (weight_gradient), whatever the
// thread count. Each element of the weight gradient is one sum over all tokens of the call, then added to
// what was there.
#pragma once

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
}  // namespace cpu

}  // namespace penstock::kernels
