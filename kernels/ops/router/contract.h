// The router of a Mixture-of-Experts layer and its two losses.
//
//   logits = x weight^T, p = softmax(logits), both float32 whatever the activations are
//   expert[t] = the K largest p[t], equal ones by index;  weight[t, k] = p of the choice, over their sum if normalised
// Losses, of a sequence of n tokens (Switch, Fedus et al., 2022, for one choice; DeepSeek-V3, 2024, for K, by sequence)
// and of a token (ST-MoE, Zoph et al., 2022):
//   balance = sum_e f[e] P[e],  f[e] = E / (K n) x choices of e,  P[e] = mean_t p[t, e]     1 when balanced
//   z = log_sum_exp(logits)^2
// Gradient of the logits, from that of the choices' weights and with s the scale of a loss:
//   d[e] = (dw[k] - (normalised: sum_i dw[i] w[i])) / (normalised: sum of the chosen p) for the choices, 0 elsewhere
//          + s_balance f[e] / n
//   logit_gradient[e] = p[e] (d[e] - sum_i p[i] d[i]) + 2 s_z log_sum_exp p[e]
//
// The balance loss is one of each sequence, so that no cut of the batch into microbatches moves it; f counts choices
// before any is dropped and has no gradient. Order: pieces are 128 tokens for products, sequences for losses; the
// weight gradient is one sum over each 512 tokens.
#pragma once

#include "kernels/ops/expect.h"
#include "kernels/ops/routing.h"

namespace penstock::kernels {

struct RouterShape {
  int64_t tokens = 0;
  int64_t experts = 0;
  int64_t choices = 0;
};
inline RouterShape router_shape(const Routing& routing) {
  const RouterShape shape{routing.probabilities.size(0), routing.probabilities.size(1),
                          routing.expert.size(1)};
  expect_matrix(routing.probabilities, shape.tokens, shape.experts, "probabilities");
  expect_elements(routing.log_sum_exp, shape.tokens, "log_sum_exp");
  expect_matrix(routing.expert, shape.tokens, shape.choices, "expert", DataType::Int32);
  expect_matrix(routing.weight, shape.tokens, shape.choices, "weight of the choices");
  PENSTOCK_CHECK(shape.choices >= 1 && shape.choices <= shape.experts, "{} choices of {} experts",
                 shape.choices, shape.experts);
  return shape;
}

namespace cpu {
class Context;
void router(Context& context, TensorView x, TensorView weight, bool normalise, const Routing& routing);
RouterLosses router_losses(Context& context, const Routing& routing, const RouterLossShape& counted);
void router_gradient(Context& context, const Routing& routing, bool normalise, TensorView weight_gradient,
                     const RouterLossShape& counted, const RouterLossScales& scales,
                     TensorView logit_gradient);
void router_input_gradient(Context& context, TensorView logit_gradient, TensorView weight,
                           TensorView x_gradient);
void router_weight_gradient(Context& context, TensorView logit_gradient, TensorView x,
                            TensorView weight_gradient);
}  // namespace cpu

}  // namespace penstock::kernels
