// One SwiGLU network: down (silu(gate x) up x).
//
// Saved (T tokens, I intermediate, a the activations' type):
//   gate_up    [T, 2 I]  a    gate and up; the input gradient writes theirs over them
//   activated  [T, I]    a    only where the backward is split: silu(gate) * up, from I to W. Else it is the workspace's
#pragma once

#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/model/blocks/feed_forward.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

class Mlp final : public FeedForward {
 public:
  struct Saved {
    Saved(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout);
    Place gate_up, activated;
  };
  Mlp(const plan::JobSpec& job, LayerIndex layer, const ParameterStore& parameters, const Saved& saved);

  Status forward(const ItemCall& call, kernels::TensorView x, kernels::TensorView added,
                 kernels::TensorView output) override;
  Status input_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                        kernels::TensorView x_gradient) override;
  void weight_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                       kernels::TensorView x) override;

 private:
  kernels::TensorView gate_of(kernels::TensorView gate_up) const;
  kernels::TensorView up_of(kernels::TensorView gate_up) const;
  kernels::TensorView activated(const ItemCall& call) const;

  Saved saved_;
  int64_t intermediate_;
  const Parameter &gate_, &up_, &down_;
};

}  // namespace penstock::worker
