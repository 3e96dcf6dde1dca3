// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, 2019). Step k counts from 1; g is the
// gradient times its clipping coefficient.
//
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   parameter = parameter (1 - lr decay) - lr / (1 - beta1^k) x m / (sqrt(v) / sqrt(1 - beta2^k) + epsilon)
//
// The scalars are formed in float64 and rounded once; the elements are float32. While the parameter is still in
// the cache the gradient becomes zero, for the next step to add to (unless the step keeps it), and a packed copy of the parameter is renewed.
#pragma once

#include "kernels/ops/expect.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels::cpu {

class Context;
void adamw(Context& context, TensorView parameter, TensorView gradient, TensorView first_moment,
           TensorView second_moment, const AdamWStep& step, const PackedRows& packed);
void pack(Context& context, TensorView weight, const PackedRows& packed);

}  // namespace penstock::kernels::cpu
