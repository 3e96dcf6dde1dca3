// What stands behind the second norm of a block: one SwiGLU network (mlp.h), or routed experts (experts.h), with shared ones beside
// them or without.
//
// It works on the block's own slot: at construction it lays out what it saves there. T tokens, H hidden; x is the
// norm's output. As in item.h the halves of a backward run the operations of the whole one on the same values, and may
// write over what the forward saved. Thread: the interpreter's.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/tensor/tensor.h"
#include "worker/model/blocks/item.h"

namespace penstock::worker {

class FeedForward {
 public:
  virtual ~FeedForward() = default;

  // output = added + network(x), all [T, H]; without `added`, which may be output, the network alone. A second forward
  // need not write it.
  virtual Status forward(const ItemCall& call, kernels::TensorView x, kernels::TensorView added,
                         kernels::TensorView output) = 0;
  // Writes x_gradient. What weight_gradient reads stays in the slot; of a whole backward also in the workspace, where
  // attention's half leaves it alone.
  virtual Status input_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                                kernels::TensorView x_gradient) = 0;
  // `output_gradient` as in input_gradient, x as in the forward.
  virtual void weight_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                               kernels::TensorView x) = 0;

  // How its experts were used in a step so far; null where there are none.
  virtual const ExpertLoad* load(StepIndex) { return nullptr; }
  // Gives back what forwards hold beside their slots whose backwards will not come.
  virtual void forget_forwards() {}
};

}  // namespace penstock::worker
