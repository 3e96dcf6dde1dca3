// One item of the model (embedding, block or head) as a stage runs it.
//
// An item lays out, at construction, what its forward saves for its backward. `residual` is the [T, H] tensor
// that passes from item to item; a block and the head keep the one that comes in as their first saved tensor,
// so the item before writes straight into it. Gradients of parameters are added to, those of residuals are
// written.
//
// The backward runs whole, or as input gradient (I) and, later, weight gradient (W). Either way it may write over
// what the forward saved: a slot has one backward. Whole and in halves it runs the same operations on the same values,
// so that every gradient has the same bits. Weights of norms are what I has gradients for anyway; those are added in I.
//
// A block may be recomputed: of its forward it keeps its input alone, and its backward runs behind a second forward,
// which is the same computation. Where its tensors stand each time is the stage's business (ItemCall); an item only lays
// out its input apart from the rest (ItemLayout).
// Thread: the interpreter's.
#pragma once

#include "base/ids.h"
#include "base/status.h"
#include "kernels/ops/operators.h"
#include "kernels/tensor/tensor.h"
#include "worker/model/workspace.h"

namespace penstock::worker {

// What an item needs to run one action.
struct ItemCall {
  StepIndex step;
  MicrobatchIndex microbatch;          // of the pipeline
  MicrobatchIndex microbatch_of_step;  // among those of all pipelines: samples and random streams go by it
  // First bytes of what the item's forward saves, and of what holds its input: both the stage's activation slot, unless
  // the item is recomputed.
  void* slot = nullptr;
  void* input_slot = nullptr;
  int slot_index = 0;  // of the activation slot
  kernels::Operators& operators;
  const Workspace& workspace;
  // Before the first step, on tokens that are all 0, to make what the first use of a shape makes.
  bool warm_up = false;
  bool evaluation = false;  // no backward follows: no gradient is formed
  // A backward reads what this forward saves: not so in an evaluation, nor in the first forward of two.
  bool keeps = true;
  // The second forward of two: what is counted has been, and nobody reads the output, which holds anything afterwards.
  bool again = false;
  kernels::TensorView document_starts{};  // [T] i32 where attention stays inside documents; else empty
};

struct ExpertLoad;

class ModelItem {
 public:
  virtual ~ModelItem() = default;

  // Forgets what it has counted of the step before.
  virtual void begin_step() {}
  // Gives back what forwards hold beside their slots whose backwards will not come.
  virtual void forget_forwards() {}
  // How its experts were used in a step so far; null where it has none.
  virtual const ExpertLoad* expert_load(StepIndex) { return nullptr; }

  // Where the item keeps the residual that comes in. Empty for the embedding.
  virtual kernels::TensorView saved_residual(void* input_slot) const = 0;

  // Reads saved_residual, writes `output` [T, H]. The head has no output.
  virtual Status forward(const ItemCall& call, kernels::TensorView output) = 0;

  // Reads `output_gradient` [T, H], writes `input_gradient` [T, H] (another tensor). Empty where the item has
  // none.
  virtual Status backward(const ItemCall& call, kernels::TensorView output_gradient,
                          kernels::TensorView input_gradient) = 0;

  // The halves, of an item laid out for BackwardForm::Split. Where the item keeps the gradient of its output from I to
  // W: whoever makes it writes it there. Empty: it keeps none, any tensor will do.
  virtual kernels::TensorView saved_output_gradient(void* slot) const = 0;
  // As backward; leaves what weight_gradient reads in the slot. `output_gradient` is saved_output_gradient, unless
  // that is empty.
  virtual Status input_gradient(const ItemCall& call, kernels::TensorView output_gradient,
                                kernels::TensorView input_gradient) = 0;
  virtual void weight_gradient(const ItemCall& call) = 0;
};

}  // namespace penstock::worker
