// The head: final norm, LM head and the token-mean cross-entropy.
//
// Saved, in this order (T tokens, H hidden):
//   x            [T, H]  f32
//   inverse_rms  [T]     f32
//   targets      [T]     i32
//   log_sum_exp  [T]     f32
// The loss is the mean over the targets of the whole step, so the backward scales by 1 / their number, which is
// known before the first one, and microbatches simply add up. Tokens without a target count for nothing.
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
  void backward(const ItemCall& call, kernels::TensorView, kernels::TensorView input_gradient) override;

  void begin_step();
  const StepLoss& loss() const { return loss_; }
  // Of the step, once a forward of it has run; 0 before.
  int64_t targets() const { return targets_; }

 private:
  struct Saved {
    Saved(const plan::JobSpec& job, Layout& layout);
    Place x, inverse_rms, targets, log_sum_exp;
  };
  Saved saved_;
  const Parameter& norm_;
  const Parameter& weight_;
  TokenSource* source_;
  double epsilon_;
  StepLoss loss_;
  int64_t targets_ = 0;  // of the whole step
};

}  // namespace penstock::worker
