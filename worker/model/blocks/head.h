// The head: final norm, LM head and the token-mean cross-entropy.
//
// Saved, in this order (T tokens, H hidden, a the activations' type):
//   x                [T, H]  a
//   inverse_rms      [T]     f32
//   normed_gradient  [T, H]  a    of the final norm's output
// The logits exist for some tokens at a time, and only once: the forward takes the loss from them, and with it their
// gradient, the weight's and that of the norm's output. The backward has the norm left, and all of it is I. So the
// head's weight gradient adds up in the order of the forwards, which is that of the microbatches. The loss is the mean
// over the targets of the whole step, so gradients are scaled by 1 / their number, which is known before the first one,
// and microbatches simply add up. Tokens without a target count for nothing.
#pragma once

#include "plan/spec/job_spec.h"
#include "worker/data/token_source.h"
#include "worker/model/blocks/item.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"
#include "worker/model/step_loss.h"

namespace penstock::worker {

class HeadItem final : public ModelItem {
 public:
  HeadItem(const plan::JobSpec& job, const ParameterStore& parameters, TokenSource& source, Layout& layout);

  static void place(const plan::JobSpec& job, Layout& layout) { Saved(job, layout); }

  kernels::TensorView saved_residual(void* slot) const override { return saved_.x.in(slot); }
  Status forward(const ItemCall& call, kernels::TensorView) override;
  Status backward(const ItemCall& call, kernels::TensorView, kernels::TensorView input_gradient) override;
  kernels::TensorView saved_output_gradient(void*) const override { return {}; }
  Status input_gradient(const ItemCall& call, kernels::TensorView,
                        kernels::TensorView input_gradient) override {
    return backward(call, {}, input_gradient);
  }
  void weight_gradient(const ItemCall&) override {}

  void begin_step() override;
  const StepLoss& loss() const { return loss_; }
  // Of the step, once a forward of it has run; 0 before.
  int64_t targets() const { return targets_; }

 private:
  struct Saved {
    Saved(const plan::JobSpec& job, Layout& layout);
    Place x, inverse_rms, normed_gradient;
  };
  Status read_targets(const ItemCall& call);
  double loss_of(const ItemCall& call, kernels::TensorView normed) const;

  Saved saved_;
  const Parameter& norm_;
  const Parameter& weight_;
  TokenSource* source_;
  double epsilon_;
  StepLoss loss_;
  int64_t targets_ = 0;  // of the whole step
};

}  // namespace penstock::worker
