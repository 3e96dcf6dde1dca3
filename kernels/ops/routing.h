// What a Mixture-of-Experts layer decides for its tokens, and where the rows then stand.
//
// T tokens, E experts, K choices of a token, R rows: T x K where nothing is dropped. Views own nothing.
#pragma once

#include <cstdint>

#include "kernels/ops/packed_weight.h"
#include "kernels/tensor/tensor.h"

namespace penstock::kernels {

// What the router says of each token.
struct Routing {
  TensorView probabilities;  // [T, E] f32  softmax of the logits
  TensorView log_sum_exp;    // [T]    f32  of the logits
  TensorView expert;         // [T, K] i32  by falling probability; of equal ones the lower index first
  TensorView weight;         // [T, K] f32  of the choice in the token's output
};

// The row of a choice for which the expert had no capacity left.
constexpr int32_t kDropped = -1;

// The rows of all experts, one expert after another, each one's by token and then by choice.
struct Dispatch {
  TensorView row;      // [T, K]  i32  where a choice went, or kDropped
  TensorView source;   // [R]     i32  the way back: choice t x K + k of each row
  TensorView offsets;  // [E + 1] i32  rows of expert e: offsets[e] to offsets[e + 1] - 1
};

// Which tokens the router's losses count: the first sequences of the call. The others fill it up.
struct RouterLossShape {
  int64_t sequences = 0;
  int64_t sequence_length = 0;
};
// Both losses as sums, float64: of the sequences, of the tokens.
struct RouterLosses {
  double balance = 0;
  double z = 0;
};
// What one sequence's balance loss, and one token's z-loss, weigh in the step's loss.
struct RouterLossScales {
  double balance = 0;
  double z = 0;
};

// One expert: down (silu(gate x) up x).
struct ExpertWeights {
  PackedWeight gate_up;  // [2 I, H]: gate's rows, then up's
  PackedWeight down;     // [H, I]
};
struct ExpertGradients {
  TensorView gate;  // [I, H] f32
  TensorView up;    // [I, H] f32
  TensorView down;  // [H, I] f32
};

// Rows of all experts, as Dispatch orders them.
struct ExpertInputGradient {
  TensorView output_gradient;   // [R, H]      of the outputs before they are weighted
  TensorView weight;            // [R] f32     of a row in its token's output
  TensorView gate_up;           // [R, 2 I]    of the forward
  TensorView gate_up_gradient;  // [R, 2 I]    written; may be gate_up
  TensorView weighted;          // [R, I]      written: weight x the forward's SwiGLU product
  TensorView weight_gradient;   // [R] f32     written
  TensorView payload_gradient;  // [R, H]      written
};
// What is left for the weight gradient.
struct ExpertWeightGradient {
  TensorView payload;           // [R, H]
  TensorView output_gradient;   // [R, H]
  TensorView gate_up_gradient;  // [R, 2 I]
  TensorView weighted;          // [R, I]
};

}  // namespace penstock::kernels
