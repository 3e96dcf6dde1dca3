// Language-model head and its loss: the sum over tokens of the cross-entropy of softmax(x weight^T), and in the same
// pass the gradients of scale x that sum.
//
//   logits = x weight^T                        [T, vocabulary], a chunk of tokens at a time, never whole
//   loss = sum_t (log sum_v exp(logits[t, v]) - logits[t, targets[t]])
//   d[t, v] = scale (softmax(logits[t])[v] - [v = targets[t]])
//   x_gradient = d weight, weight_gradient += d^T x
//   A token whose target is kNoTarget adds nothing to the loss, and its d is 0.
//
// With bfloat16 logits, their softmax and the loss are float32 and float64; d is rounded for the products that read
// it. The gradients are formed with the loss because a backward of its own would compute the logits again, a fourth
// product beside the three that are needed (Hsu et al., "Liger Kernel", 2024).
//
// Order: the loss is added in token order in float64. The weight gradient is added chunk by chunk of tokens;
// the chunk depends on the vocabulary and the type alone. A target outside the vocabulary stops the process: the data
// reader has checked them.
#pragma once

#include "kernels/ops/expect.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels::cpu {

class Context;
// x [T, hidden], weight [vocabulary, hidden], targets [T] i32.
double head_loss(Context& context, TensorView x, const PackedWeight& weight, TensorView targets);
double head_loss_and_gradients(Context& context, TensorView x, const PackedWeight& weight, TensorView targets,
                               double scale, TensorView x_gradient, TensorView weight_gradient);

}  // namespace penstock::kernels::cpu
