// SwiGLU (Shazeer, 2020).
//
//   output = silu(gate) up,  silu(g) = g sigmoid(g)
//   up_gradient = output_gradient silu(gate)
//   gate_gradient = output_gradient up sigmoid(gate) (1 + gate (1 - sigmoid(gate)))
//
// All tensors are [T, intermediate] of one type, float32 or bfloat16 computed in float32; each may be some columns
// of a wider matrix. A gradient may overwrite the tensor that it is computed from. The backward also writes the
// output again where it is asked for: the product after it needs it, and it costs two more operations.
#pragma once

#include "kernels/ops/expect.h"

namespace penstock::kernels::cpu {

class Context;
void swiglu(Context& context, TensorView gate, TensorView up, TensorView output);
void swiglu_backward(Context& context, TensorView gate, TensorView up, TensorView output_gradient,
                     TensorView gate_gradient, TensorView up_gradient, TensorView output);

}  // namespace penstock::kernels::cpu
