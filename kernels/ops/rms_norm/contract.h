// RMS norm (Zhang and Sennrich, 2019), as Llama uses it.
//
//   inverse_rms[t] = 1 / sqrt(mean_j x[t, j]^2 + epsilon)
//   output[t, j] = x[t, j] inverse_rms[t] weight[j]
//   backward, with g = output_gradient x weight:
//     x_gradient[t, j] = inverse_rms[t] g[t, j] - x[t, j] inverse_rms[t]^3 mean_j(g[t, j] x[t, j])
//     weight_gradient[j] += sum_t output_gradient[t, j] x[t, j] inverse_rms[t]
//
// Order: the sum over tokens is formed in pieces of 64 tokens, which are then added in token order.
#pragma once

#include "kernels/ops/expect.h"

namespace penstock::kernels {

struct RmsNormShape {
  int64_t tokens = 0;
  int64_t hidden = 0;
};

// x [T, hidden], weight [hidden], inverse_rms [T].
inline RmsNormShape rms_norm_shape(const TensorView& x, const TensorView& weight,
                                   const TensorView& inverse_rms) {
  const RmsNormShape shape{x.size(0), x.size(1)};
  expect_matrix(x, shape.tokens, shape.hidden, "x");
  expect_elements(weight, shape.hidden, "weight");
  expect_elements(inverse_rms, shape.tokens, "inverse_rms");
  return shape;
}

namespace cpu {
class Context;
void rms_norm(Context& context, TensorView x, TensorView weight, double epsilon, TensorView output,
              TensorView inverse_rms);
void rms_norm_backward(Context& context, TensorView x, TensorView weight, TensorView inverse_rms,
                       TensorView output_gradient, TensorView x_gradient, TensorView weight_gradient);
}  // namespace cpu

}  // namespace penstock::kernels
