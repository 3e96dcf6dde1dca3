// A pre-norm decoder block: h = x + drop(attention(norm(x))), output = h + drop(network(norm(h))), where the network is
// an MLP or routed experts (feed_forward.h).
//
// With qk_norm q and k are RMS-normed before RoPE: every head, with one weight for all heads (Qwen3), or all heads
// together (OLMoE). drop is the hidden dropout, nothing where its probability is 0.
//
// Saved, in this order (T tokens, H hidden, Hq and Hkv heads of D, a the activations' type):
//   x              [T, H]                  a
//   inverse_rms_1  [T]                     f32
//   projected      [T, (Hq + 2 Hkv) * D]   a    query, key, value; after RoPE, with qk_norm before their norms
//   attended       [T, Hq * D]             a
//   log_sum_exp    [T * Hq]                f32
//   h              [T, H]                  a
//   inverse_rms_2  [T]                     f32
//   what the network saves
// and behind them, where the backward is split:
//   feed_forward_gradient  [T, H]          a    of what the network adds to the residual
//   attention_gradient     [T, H]          a    of what attention adds to it
// A block that is recomputed keeps x apart, in the activation slot, and the rest only while its backward runs.
// The norms' outputs, normed queries and keys, dropout masks and an MLP's SwiGLU product cost one cheap pass each and
// are computed again in the backward. x, h and their gradients are rounded to a, each once: h and the output are
// rounded where the residual has been added.
//
// The input gradient puts what the weight gradient reads where the forward's values have been read for the last time:
// the norms' outputs over x and h, gradients over projected and gate_up. A whole backward is both, one after the other;
// the tensors behind are then the workspace's.
#pragma once

#include <memory>

#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/model/blocks/feed_forward.h"
#include "worker/model/blocks/item.h"
#include "worker/model/counter_random.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

struct StageEnvironment;

class TransformerBlock final : public ModelItem {
 public:
  TransformerBlock(const StageEnvironment& environment, LayerIndex layer, plan::BackwardForm form,
                   ItemLayout layout);

  static void place(const plan::JobSpec& job, LayerIndex layer, plan::BackwardForm form, ItemLayout layout);

  kernels::TensorView saved_residual(void* input_slot) const override { return saved_.x.in(input_slot); }
  Status forward(const ItemCall& call, kernels::TensorView output) override;
  Status backward(const ItemCall& call, kernels::TensorView output_gradient,
                  kernels::TensorView input_gradient) override;
  kernels::TensorView saved_output_gradient(void* slot) const override;
  Status input_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                        kernels::TensorView input_gradient) override;
  void weight_gradient(const ItemCall& call) override;
  const ExpertLoad* expert_load(StepIndex step) override { return feed_forward_->load(step); }
  void forget_forwards() override { feed_forward_->forget_forwards(); }

 private:
  struct Saved {
    Saved(const plan::JobSpec& job, plan::BackwardForm form, ItemLayout layout);
    Place x, inverse_rms_1, projected, attended, log_sum_exp, h, inverse_rms_2;
    Place feed_forward_gradient, attention_gradient;  // where the backward is split
  };
  // What the weight gradient reads of the input gradient beside what that wrote over the slot. Without dropout a
  // branch's gradient is that of the residual.
  struct Left {
    kernels::TensorView feed_forward_gradient;  // [T, H]
    kernels::TensorView attention_gradient;     // [T, H]
  };
  struct Weights {
    Weights(const plan::ModelSpec& model, LayerIndex layer, const ParameterStore& parameters);
    const Parameter &attention_norm, &query, &key, &value, &attention_output;
    const Parameter& feed_forward_norm;
    const Parameter *query_norm = nullptr, *key_norm = nullptr;  // with qk_norm
  };
  struct Heads {
    kernels::TensorView query, key, value;
  };
  void attention_forward(const ItemCall& call);
  Status feed_forward_forward(const ItemCall& call, kernels::TensorView output);
  Left left_in_slot(void* slot) const;
  Status feed_forward_input_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                                     const Left& left) const;
  void attention_input_gradient(const ItemCall& call, const Left& left,
                                kernels::TensorView input_gradient) const;
  void add_weight_gradients(const ItemCall& call, const Left& left) const;

  kernels::TensorView added_at_once(kernels::TensorView residual) const;
  void add_dropped(const ItemCall& call, DropoutPlace::Branch branch, kernels::TensorView residual,
                   kernels::TensorView output) const;
  Heads heads_of(kernels::TensorView projected) const;
  void rotate(const ItemCall& call, const Heads& heads) const;
  Heads attention_inputs(const ItemCall& call) const;
  void heads_backward(const ItemCall& call, const Heads& heads) const;
  uint64_t mask_key(const ItemCall& call, DropoutPlace::Branch branch) const;
  bool drops() const { return model_.hidden_dropout > 0; }
  void drop_gradient(const ItemCall& call, DropoutPlace::Branch branch, kernels::TensorView of_residual,
                     kernels::TensorView of_branch) const;
  kernels::TensorView residual_gradient(const ItemCall& call, const Left& left) const;

  plan::ModelSpec model_;
  LayerIndex layer_;
  int64_t seed_;
  int64_t sequence_length_;
  kernels::AttentionShape shape_;
  Saved saved_;
  Weights weights_;
  std::unique_ptr<FeedForward> feed_forward_;
};

}  // namespace penstock::worker
