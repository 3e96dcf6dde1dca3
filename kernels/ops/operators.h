// Every operation a model needs, behind one interface: the CPU implements it first and stays the reference.
//
// Shapes: tokens T = sequences x sequence_length, row-major, sequence after sequence. All tensors are dense.
// Types: activations and their gradients are float32 or bfloat16, of one type in a call, computed in float32 and
// rounded once where they are written; weights of norms, statistics, masters, their gradients and moments are f32.
// Numerics: the same inputs give the same bits for any number of compute threads and any split of the model;
// reductions over tokens use a fixed partition; weight gradients are added to what is there, in call order.
// Errors: at the first use of a shape std::runtime_error where the host has no memory for its scratch, or the
// library no kernel; never later. Thread: one caller at a time.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/device/compute_threads.h"
#include "kernels/ops/packed_weight.h"
#include "kernels/ops/routing.h"
#include "kernels/tensor/tensor.h"

namespace penstock::kernels {

struct AttentionShape {
  int64_t sequences = 0;
  int64_t sequence_length = 0;
  int64_t query_heads = 0;
  int64_t key_value_heads = 0;  // divides query_heads
  int64_t head_size = 0;        // even
};

struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;      // decoupled; 0 for parameters that are not decayed
  double gradient_scale = 1;    // clipping coefficient
  int64_t step = 1;             // counted from 1, for bias correction
  bool keeps_gradient = false;  // else it becomes zero
};

// The target of a token that does not count.
constexpr int32_t kNoTarget = -1;

class Operators {
 public:
  virtual ~Operators() = default;

  // output[t] = table[tokens[t]].  tokens [T] i32, table [vocab, hidden], output [T, hidden].
  virtual void embedding(TensorView tokens, TensorView table, TensorView output) = 0;
  // table_gradient[tokens[t]] += output_gradient[t], in token order.
  virtual void embedding_backward(TensorView tokens, TensorView output_gradient,
                                  TensorView table_gradient) = 0;

  // output = x / rms(x) * weight, over rows of the weight's size.  x, output [T, rows x N], weight [N], inverse_rms
  // [T x rows] (saved).
  virtual void rms_norm(TensorView x, TensorView weight, double epsilon, TensorView output,
                        TensorView inverse_rms) = 0;
  // x_gradient is written: the gradient plus `added` where there is one; it may be output_gradient or x. weight_gradient
  // is added to. `output` gets the norm's output again where it is asked for; it may be x.
  virtual void rms_norm_backward(TensorView x, TensorView weight, TensorView inverse_rms,
                                 TensorView output_gradient, TensorView x_gradient,
                                 TensorView weight_gradient, TensorView added = {},
                                 TensorView output = {}) = 0;

  // A linear layer: x [T, in], output [T, out], and their gradients, of the packed weight's type.
  // output = x weight^T, plus `added` [T, out] where there is one, rounded once.
  virtual void linear(TensorView x, const PackedWeight& weight, TensorView output, TensorView added = {}) = 0;
  // x_gradient = output_gradient weight.
  virtual void linear_input_gradient(TensorView output_gradient, const PackedWeight& weight,
                                     TensorView x_gradient) = 0;
  // weight_gradient += output_gradient^T x, of the weights that share the product: the output gradient's columns
  // belong to them one after another. Each [its out, in] f32.
  virtual void linear_weight_gradient(TensorView output_gradient, TensorView x,
                                      std::span<const TensorView> weight_gradients) = 0;
  // Renews rows of a packed weight from their master [rows, in] f32.
  virtual void pack(TensorView weight, const PackedRows& packed) = 0;

  // Rotates [T, heads x head_size] in place by the position of each token in its sequence, as Hugging Face does
  // (halves, not pairs). The backward is the rotation by the negative angle.
  virtual void rope(TensorView x, int64_t sequence_length, int64_t head_size, double theta) = 0;
  virtual void rope_backward(TensorView x_gradient, int64_t sequence_length, int64_t head_size,
                             double theta) = 0;

  // Causal grouped-query attention, scale 1/sqrt(head_size).  query [T, query_heads x head_size],
  // key, value [T, key_value_heads x head_size], output as query, log_sum_exp [sequences x query_heads x
  // sequence_length] f32 (saved). document_starts [T] i32: where in its sequence the first token of a token's
  // own document stands; a token sees none before it. Empty: a sequence is one document.
  virtual void attention(const AttentionShape& shape, TensorView query, TensorView key, TensorView value,
                         TensorView output, TensorView log_sum_exp, TensorView document_starts = {}) = 0;
  // Writes the three gradients, each perhaps over what it is the gradient of.
  virtual void attention_backward(const AttentionShape& shape, TensorView query, TensorView key,
                                  TensorView value, TensorView output, TensorView log_sum_exp,
                                  TensorView output_gradient, TensorView query_gradient,
                                  TensorView key_gradient, TensorView value_gradient,
                                  TensorView document_starts = {}) = 0;

  // output = silu(gate) * up, all [T, intermediate]. The backward writes the output again where it is asked for.
  virtual void swiglu(TensorView gate, TensorView up, TensorView output) = 0;
  virtual void swiglu_backward(TensorView gate, TensorView up, TensorView output_gradient,
                               TensorView gate_gradient, TensorView up_gradient, TensorView output = {}) = 0;

  // Mixture of Experts (routing.h; contracts in router, dispatch and experts).
  // The choices of x [T, H] by the router's weight [E, H] f32; normalise: a token's weights sum to one.
  virtual void router(TensorView x, TensorView weight, bool normalise, const Routing& routing) = 0;
  virtual RouterLosses router_losses(const Routing& routing, const RouterLossShape& counted) = 0;
  // logit_gradient [T, E] f32, which may be the probabilities, from that of the choices' weights [T, K] f32 and the
  // losses.
  virtual void router_gradient(const Routing& routing, bool normalise, TensorView weight_gradient,
                               const RouterLossShape& counted, const RouterLossScales& scales,
                               TensorView logit_gradient) = 0;
  // x_gradient [T, H] is written, weight_gradient [E, H] f32 added to.
  virtual void router_input_gradient(TensorView logit_gradient, TensorView weight, TensorView x_gradient) = 0;
  virtual void router_weight_gradient(TensorView logit_gradient, TensorView x,
                                      TensorView weight_gradient) = 0;
  // Gives every choice [T, K] its row. capacity: of one expert; 0: all come in. Returns how many were dropped.
  virtual int64_t plan_dispatch(TensorView expert, int64_t capacity, const Dispatch& dispatch) = 0;
  // rows [R, H] = the tokens' x [T, H], in the order of the experts.
  virtual void gather_rows(TensorView x, const Dispatch& dispatch, TensorView rows) = 0;
  // output [T, H] = `added` [T, H] where there is one, plus the tokens' rows, times their weights [T, K] f32 where
  // there are any. output may be `added`.
  virtual void combine_rows(TensorView rows, const Dispatch& dispatch, TensorView weight, TensorView added,
                            TensorView output) = 0;
  // One float32 of each choice [T, K], in the order of the rows [R] and back.
  virtual void gather_choices(TensorView values, const Dispatch& dispatch, TensorView of_rows) = 0;
  virtual void return_choices(TensorView of_rows, const Dispatch& dispatch, TensorView values) = 0;
  // output [R, H] = the experts' outputs, each on its own rows of payload [R, H]; gate_up [R, 2 I] is saved.
  virtual void experts(TensorView payload, TensorView offsets, std::span<const ExpertWeights> weights,
                       TensorView gate_up, TensorView output) = 0;
  virtual void experts_input_gradient(const ExpertInputGradient& rows, TensorView offsets,
                                      std::span<const ExpertWeights> weights) = 0;
  // Added to the gradients of all experts.
  virtual void experts_weight_gradient(const ExpertWeightGradient& rows, TensorView offsets,
                                       std::span<const ExpertGradients> gradients) = 0;

  // output = x / (1 - probability) where the key's mask keeps an element, 0 elsewhere; output may be x. Applied
  // to a gradient with the same key it is its own backward (dropout/contract.h).
  virtual void dropout(TensorView x, double probability, uint64_t key, TensorView output) = 0;

  // output = a + b; output may be a or b.
  virtual void add(TensorView a, TensorView b, TensorView output) = 0;

  // Sum over tokens of the cross-entropy of softmax(x weight^T) against targets, in chunks of tokens: full logits
  // never exist.  x [T, hidden] of the packed weight's type, weight [vocab, hidden], targets [T] i32; a token whose
  // target is kNoTarget has no loss and no gradient. Returns the sum in float64, added in token order.
  virtual double head_loss(TensorView x, const PackedWeight& weight, TensorView targets) = 0;
  // The same, and in the same pass the gradients of scale x the sum: x_gradient [T, hidden] of the type of x is
  // written, weight_gradient [vocab, hidden] f32 added to. The logits are computed once.
  virtual double head_loss_and_gradients(TensorView x, const PackedWeight& weight, TensorView targets,
                                         double scale, TensorView x_gradient, TensorView weight_gradient) = 0;

  // Sum of squares in float64, in a fixed order that depends on the element count alone.
  virtual double sum_of_squares(TensorView x) = 0;
  // One AdamW update with decoupled decay, all f32 of one shape. The gradient becomes zero, unless the step keeps it;
  // rows of a packed weight are renewed.
  virtual void adamw(TensorView parameter, TensorView gradient, TensorView first_moment,
                     TensorView second_moment, const AdamWStep& step, const PackedRows& packed = {}) = 0;
  virtual void fill(TensorView x, float value) = 0;
  virtual void copy(TensorView source, TensorView target) = 0;
};

// oneDNN and our own loops. `threads` must outlive it.
std::unique_ptr<Operators> make_cpu_operators(ComputeThreads& threads);

// Instruction set and library versions that decide the bits: "oneDNN 2.6.3 avx512_core_bf16".
std::string cpu_fingerprint();

}  // namespace penstock::kernels
