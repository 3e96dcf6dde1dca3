// One stage of the model on this rank, as the interpreter sees it: forward and backward by activation slot.
//
// Boundary tensors are [tokens_per_microbatch, hidden] of the boundary dtype. The first stage's input and the
// last stage's output are empty. What a forward must keep for its backward it keeps in activation slot
// `slot`. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "kernels/tensor/tensor.h"

namespace penstock::worker {

struct ExpertLoad;
struct LayerTime;

struct StageCall {
  StepIndex step;
  MicrobatchIndex microbatch;
  int slot = 0;  // activation slot leased for this microbatch
  int weight_version = 0;
  bool warm_up = false;  // before the first step: no tokens are read and no loss is kept
  // Empty at the pipeline's ends.
  kernels::TensorView input{};   // forward: activations in; backward: output gradient in
  kernels::TensorView output{};  // forward: activations out; backward: input gradient out
};

class Stage {
 public:
  virtual ~Stage() = default;
  virtual StageIndex index() const = 0;

  // Forgets the losses of the step before. Called once before the first forward of a step.
  virtual void begin_step(StepIndex) {}

  // Gives back what forwards hold beside their activation slots whose backwards will not come: all slots are free.
  virtual void forget_forwards() {}

  virtual Status forward(const StageCall& call) = 0;
  virtual Status backward(const StageCall& call) = 0;         // fused: input and weight gradients
  virtual Status input_gradient(const StageCall& call) = 0;   // split: as backward
  virtual Status weight_gradient(const StageCall& call) = 0;  // later, from the slot; no tensor in or out

  // How long the calls since the last one of this have waited for other ranks.
  virtual Duration take_waited() { return Duration::zero(); }

  // From here on calls are timed layer by layer, or not; what was timed is forgotten.
  virtual void time_layers(bool) {}
  // Since then, by type of layer.
  virtual std::span<const LayerTime> layer_times() const { return {}; }

  // Whether this is the loss stage: the one that owns the head.
  virtual bool has_loss() const { return false; }
  // Sum of the losses of the step so far, in microbatch order whatever the order of the forwards was. Divided
  // by the targets of the step it is the loss of the step. 0 on a stage without the loss.
  virtual double loss_sum() const = 0;
  // Tokens of the whole step that have a target, once its first forward has run; 0 on a stage without the loss.
  virtual int64_t loss_targets() const { return 0; }
  // What this rank adds to the loss of the step: the sum over the targets of the whole step, on however many ranks its
  // microbatches are. 0 where none of them was here.
  double mean_loss() const {
    const int64_t targets = loss_targets();
    return targets == 0 ? 0 : loss_sum() / static_cast<double>(targets);
  }
  // How the experts of its blocks were used in a step so far, block after block: of the one that runs, those that its
  // forwards have begun, and the one that has just ended.
  virtual std::vector<const ExpertLoad*> expert_loads(StepIndex) const { return {}; }
};

}  // namespace penstock::worker
