// RMS norm (Zhang and Sennrich, 2019), as Llama uses it, over rows of N = the weight's elements.
//
//   inverse_rms[r] = 1 / sqrt(mean_j x[r, j]^2 + epsilon)
//   output[r, j] = x[r, j] inverse_rms[r] weight[j]
//   backward, with g = output_gradient x weight:
//     x_gradient[r, j] = added[r, j] + inverse_rms[r] g[r, j] - x[r, j] inverse_rms[r]^3 mean_j(g[r, j] x[r, j])
//     weight_gradient[j] += sum_r output_gradient[r, j] x[r, j] inverse_rms[r]
//
// A token of N x G columns is G rows, each normalised on its own (the heads of QK-norm). Statistics and sums are
// float32; tensors of rows are float32 or bfloat16 and are rounded once, when they are written. Order: the sum over
// rows is formed in pieces of 64 tokens, which are then added in token order.
#pragma once

#include "kernels/ops/expect.h"

namespace penstock::kernels {

struct RmsNormShape {
  int64_t tokens = 0;
  int64_t groups = 0;  // rows of a token
  int64_t width = 0;   // N
};

// x [T, groups x width], weight [width], inverse_rms [T x groups].
inline RmsNormShape rms_norm_shape(const TensorView& x, const TensorView& weight,
                                   const TensorView& inverse_rms) {
  const RmsNormShape shape{x.size(0), x.size(1) / weight.elements(), weight.elements()};
  expect_columns(x, shape.tokens, shape.groups * shape.width, "x", x.type());
  expect_elements(weight, shape.width, "weight");
  expect_elements(inverse_rms, shape.tokens * shape.groups, "inverse_rms");
  return shape;
}

namespace cpu {
class Context;
void rms_norm(Context& context, TensorView x, TensorView weight, double epsilon, TensorView output,
              TensorView inverse_rms);
void rms_norm_backward(Context& context, TensorView x, TensorView weight, TensorView inverse_rms,
                       TensorView output_gradient, TensorView x_gradient, TensorView weight_gradient,
                       TensorView added, TensorView output);
}  // namespace cpu

}  // namespace penstock::kernels
