// One SwiGLU network: down (silu(gate x) up x). A block's MLP, or the shared experts beside its routed ones.
//
// Saved (T tokens, I intermediate, a the activations' type):
//   gate_up    [T, 2 I]  a    gate and up; the input gradient writes theirs over them
//   activated  [T, I]    a    only where the backward is split: silu(gate) * up, from I to W. Else it is the workspace's
#pragma once

#include <string>

#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/model/blocks/feed_forward.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

class Mlp final : public FeedForward {
 public:
  struct Saved {
    Saved(const plan::JobSpec& job, int64_t intermediate_size, plan::BackwardForm form, Layout& layout);
    int64_t intermediate_size;
    Place gate_up, activated;
  };
  // `name`: what stands before its matrices' names in the block, "mlp".
  Mlp(LayerIndex layer, const std::string& name, const ParameterStore& parameters, const Saved& saved);

  Status forward(const ItemCall& call, kernels::TensorView x, kernels::TensorView added,
                 kernels::TensorView output) override;
  Status input_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                        kernels::TensorView x_gradient) override;
  void weight_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                       kernels::TensorView x) override;

 private:
  kernels::TensorView gate_of(kernels::TensorView gate_up) const;
  kernels::TensorView up_of(kernels::TensorView gate_up) const;
  kernels::TensorView in_workspace(kernels::TensorView widest) const;
  kernels::TensorView activated(const ItemCall& call) const;

  Saved saved_;
  const Parameter &gate_, &up_, &down_;
};

}  // namespace penstock::worker
