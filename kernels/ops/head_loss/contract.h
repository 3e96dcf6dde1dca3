// Language-model head and its loss: the sum over tokens of the cross-entropy of softmax(x weight^T).
//
//   logits = x weight^T                        [T, vocabulary], a chunk of tokens at a time, never whole
//   log_sum_exp[t] = log sum_v exp(logits[t, v])
//   loss = sum_t (log_sum_exp[t] - logits[t, targets[t]])
//   A token whose target is kNoTarget adds nothing to the loss, and its d is 0.
//   backward: d[t, v] = scale (exp(logits[t, v] - log_sum_exp[t]) - [v = targets[t]])
//     x_gradient = d weight, weight_gradient += d^T x
//
// Order: the loss is added in token order in float64. The weight gradient is added chunk by chunk of tokens;
// the chunk depends on the vocabulary alone. The backward computes the logits again, with the same bits. A
// target outside the vocabulary stops the process: the data reader has checked them.
#pragma once

#include "kernels/ops/expect.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels {

struct HeadLossShape {
  int64_t tokens = 0;
  int64_t hidden = 0;
  int64_t vocabulary = 0;
};

// x [T, hidden], weight [vocabulary, hidden], targets [T] i32, log_sum_exp [T].
inline HeadLossShape head_loss_shape(const TensorView& x, const TensorView& weight, const TensorView& targets,
                                     const TensorView& log_sum_exp) {
  const HeadLossShape shape{x.size(0), x.size(1), weight.size(0)};
  expect_matrix(x, shape.tokens, shape.hidden, "x");
  expect_matrix(weight, shape.vocabulary, shape.hidden, "weight");
  expect_elements(targets, shape.tokens, "targets", DataType::Int32);
  expect_elements(log_sum_exp, shape.tokens, "log_sum_exp");
  return shape;
}

namespace cpu {
class Context;
double head_loss(Context& context, TensorView x, TensorView weight, TensorView targets,
                 TensorView log_sum_exp);
double head_loss(Context& context, TensorView x, const PackedWeight& weight, TensorView targets);
double head_loss_and_gradients(Context& context, TensorView x, const PackedWeight& weight, TensorView targets,
                               double scale, TensorView x_gradient, TensorView weight_gradient);
void head_loss_backward(Context& context, TensorView x, TensorView weight, TensorView targets,
                        TensorView log_sum_exp, double scale, TensorView x_gradient,
                        TensorView weight_gradient);
}  // namespace cpu

}  // namespace penstock::kernels
