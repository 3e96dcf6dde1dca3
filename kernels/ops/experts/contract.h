// The experts of a Mixture-of-Experts layer: SwiGLU networks, each on its own rows (dispatch/contract.h).
//
// For the rows x of one expert, with c the rows' weights in their tokens' outputs and g the gradients of those
// outputs, one row each:
//   forward          gate_up = x [gate; up]^T,  a = silu(gate) up,  output = a down^T       not weighted yet
//   input gradient   u = g down,  weight_gradient of c = sum_i u[i] a[i],  weighted = c a,
//                    gate_up_gradient = backward of a by c u,  payload_gradient = gate_up_gradient [gate; up]
//   weight gradient  down += g^T weighted,  gate and up += gate_up_gradient^T x
// So the experts' outputs need not be kept. gate_up_gradient may overwrite gate_up. A row's weight comes with it as
// float32; rows of activations are float32 or bfloat16, summed in float32 and rounded where they are written.
//
// Products have a few fixed shapes, made at the first call. A tile is up to 128 rows of one expert, in a product of a
// multiple of eight rows and one of those that are left: no row is computed that does not exist, and a row's bits are
// its own. A sum of the weight gradient is up to 512 rows of one expert, filled up with zeros to one of 32 lengths, and
// is added to what is there in order of the rows. So bits depend on the expert's own rows alone: not on the threads,
// and not on how many rows other experts have. An expert without rows adds nothing to its gradients.
#pragma once

#include <span>

#include "kernels/ops/expect.h"
#include "kernels/ops/routing.h"

namespace penstock::kernels {

struct ExpertShape {
  int64_t experts = 0;
  int64_t most_rows = 0;
  int64_t hidden = 0;        // H
  int64_t intermediate = 0;  // I
  DataType type = DataType::Float32;
};
// payload [R, H], gate_up [R, 2 I].
inline ExpertShape expert_shape(const TensorView& payload, const TensorView& gate_up,
                                const TensorView& offsets) {
  const ExpertShape shape{offsets.elements() - 1, payload.size(0), payload.size(1), gate_up.size(1) / 2,
                          payload.type()};
  expect_matrix(payload, shape.most_rows, shape.hidden, "rows of the experts", shape.type);
  expect_matrix(gate_up, shape.most_rows, 2 * shape.intermediate, "gate_up", shape.type);
  expect_elements(offsets, shape.experts + 1, "offsets of the experts", DataType::Int32);
  return shape;
}

namespace cpu {
class Context;
void experts(Context& context, TensorView payload, TensorView offsets, std::span<const ExpertWeights> weights,
             TensorView gate_up, TensorView output);
void experts_input_gradient(Context& context, const ExpertInputGradient& rows, TensorView offsets,
                            std::span<const ExpertWeights> weights);
void experts_weight_gradient(Context& context, const ExpertWeightGradient& rows, TensorView offsets,
                             std::span<const ExpertGradients> gradients);
}  // namespace cpu

}  // namespace penstock::kernels
