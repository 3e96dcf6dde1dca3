// A pre-norm decoder block: h = x + drop(attention(norm(x))), output = h + drop(swiglu(norm(h))).
//
// With qk_norm every head of q and k is RMS-normed before RoPE, with one weight for all heads (Qwen3). drop is
// the hidden dropout, nothing where its probability is 0.
//
// Saved, in this order (T tokens, H hidden, I intermediate, Hq and Hkv heads of D, all f32):
//   x              [T, H]
//   inverse_rms_1  [T]
//   query          [T, Hq * D]    after RoPE; with qk_norm before its norm
//   key            [T, Hkv * D]   as the query
//   value          [T, Hkv * D]
//   attended       [T, Hq * D]
//   log_sum_exp    [T * Hq]
//   h              [T, H]
//   inverse_rms_2  [T]
//   gate           [T, I]
//   up             [T, I]
// The norms' outputs, normed queries and keys, dropout masks and the SwiGLU product cost one cheap pass each and
// are computed again in the backward.
#pragma once

#include "plan/spec/job_spec.h"
#include "worker/model/blocks/item.h"
#include "worker/model/counter_random.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

class TransformerBlock final : public ModelItem {
 public:
  TransformerBlock(const plan::JobSpec& job, LayerIndex layer, const ParameterStore& parameters,
                   Layout& layout);

  static void place(const plan::JobSpec& job, Layout& layout) { Saved(job, layout); }

  kernels::TensorView saved_residual(void* slot) const override { return saved_.x.in(slot); }
  Status forward(const ItemCall& call, kernels::TensorView output) override;
  void backward(const ItemCall& call, kernels::TensorView output_gradient,
                kernels::TensorView input_gradient) override;

 private:
  struct Saved {
    Saved(const plan::JobSpec& job, Layout& layout);
    Place x, inverse_rms_1, query, key, value, attended, log_sum_exp, h, inverse_rms_2, gate, up;
  };
  struct Weights {
    Weights(const plan::ModelSpec& model, LayerIndex layer, const ParameterStore& parameters);
    const Parameter &attention_norm, &query, &key, &value, &attention_output;
    const Parameter &feed_forward_norm, &gate, &up, &down;
    const Parameter *query_norm = nullptr, *key_norm = nullptr;  // with qk_norm
  };
  struct QueryAndKey {
    kernels::TensorView query, key;
  };

  void attention_forward(const ItemCall& call);
  void feed_forward_forward(const ItemCall& call, kernels::TensorView output);
  void feed_forward_backward(const ItemCall& call, kernels::TensorView output_gradient);
  void attention_backward(const ItemCall& call, kernels::TensorView input_gradient);

  void rotate(const ItemCall& call, const QueryAndKey& heads) const;
  QueryAndKey attention_inputs(const ItemCall& call) const;
  QueryAndKey norm_heads_backward(const ItemCall& call);
  kernels::TensorView per_head(kernels::TensorView tensor) const;
  uint64_t mask_key(const ItemCall& call, DropoutPlace::Branch branch) const;
  void drop(const ItemCall& call, DropoutPlace::Branch branch, kernels::TensorView tensor) const;
  kernels::TensorView drop_gradient(const ItemCall& call, DropoutPlace::Branch branch,
                                    kernels::TensorView gradient) const;

  plan::ModelSpec model_;
  LayerIndex layer_;
  int64_t seed_;
  int64_t sequence_length_;
  kernels::AttentionShape shape_;
  Saved saved_;
  Weights weights_;
};

}  // namespace penstock::worker
