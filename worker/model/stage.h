// One stage of the model on this rank, as the interpreter sees it: forward and backward by activation slot.
//
// Boundary tensors are [tokens_per_microbatch, hidden] of the boundary dtype. The first stage's input and the last
// stage's output are empty. What a forward must keep for its backward it keeps in activation slot `slot`.
// Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/tensor/tensor.h"

namespace penstock::worker {

struct StageCall {
  StepIndex step;
  MicrobatchIndex microbatch;
  int slot = 0;                // activation slot leased for this microbatch
  int weight_version = 0;
  kernels::TensorView input;   // forward: activations in; backward: output gradient in. Empty at the pipeline's ends
  kernels::TensorView output;  // forward: activations out; backward: input gradient out. Empty at the ends
};

class Stage {
 public:
  virtual ~Stage() = default;
  virtual StageIndex index() const = 0;

  virtual Status forward(const StageCall& call) = 0;
  virtual Status backward(const StageCall& call) = 0;         // fused: input and weight gradients
  virtual Status input_gradient(const StageCall& call) = 0;   // split; Unimplemented until a schedule needs it
  virtual Status weight_gradient(const StageCall& call) = 0;  // split

  // Sum of the losses of the step so far, in microbatch order; only the loss stage has one.
  virtual double loss_sum() const = 0;
};

}  // namespace penstock::worker
