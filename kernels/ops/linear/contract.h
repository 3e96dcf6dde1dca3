// Linear layer without bias; the master weight lies as Hugging Face stores it, [out, in].
//
//   output = x weight^T (+ added)
//   x_gradient = output_gradient weight
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

namespace penstock::kernels::cpu {

class Context;
void linear(Context& context, TensorView x, const PackedWeight& weight, TensorView output, TensorView added);
void linear_input_gradient(Context& context, TensorView output_gradient, const PackedWeight& weight,
                           TensorView x_gradient);
void linear_weight_gradient(Context& context, TensorView output_gradient, TensorView x,
                            std::span<const TensorView> weight_gradients);

}  // namespace penstock::kernels::cpu
