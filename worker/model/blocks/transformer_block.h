// A pre-norm decoder block: h = x + attention(norm(x)), output = h + swiglu(norm(h)).
//
// Saved, in this order (T tokens, H hidden, I intermediate, Hq and Hkv heads of D, all f32):
//   x              [T, H]
//   inverse_rms_1  [T]
//   query          [T, Hq * D]    after RoPE
//   key            [T, Hkv * D]   after RoPE
//   value          [T, Hkv * D]
//   attended       [T, Hq * D]
//   log_sum_exp    [T * Hq]
//   h              [T, H]
//   inverse_rms_2  [T]
//   gate           [T, I]
//   up             [T, I]
// The norms' outputs and the SwiGLU product cost one cheap pass each and are computed again in the backward.
#pragma once

#include "plan/spec/job_spec.h"
#include "worker/model/blocks/item.h"
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
    Weights(LayerIndex layer, const ParameterStore& parameters);
    const Parameter &attention_norm, &query, &key, &value, &attention_output;
    const Parameter &feed_forward_norm, &gate, &up, &down;
  };

  void attention_forward(const ItemCall& call);
  void feed_forward_forward(const ItemCall& call, kernels::TensorView output);
  void feed_forward_backward(const ItemCall& call, kernels::TensorView output_gradient);
  void attention_backward(const ItemCall& call, kernels::TensorView input_gradient);

  plan::ModelSpec model_;
  int64_t sequence_length_;
  kernels::AttentionShape shape_;
  Saved saved_;
  Weights weights_;
};

}  // namespace penstock::worker
