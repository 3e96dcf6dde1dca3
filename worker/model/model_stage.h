// The stage that trains: its items of the model, run one after another on kernels::Operators.
//
// Activation slot: the saved tensors of the items in model order, as each item's file lists them; every
// tensor is rounded up to 64 bytes. Slot i begins at activations.data + i x slot_bytes. Edges: what passes
// between two items is of the activations' type (train.dtype), inside a stage as between stages: the operation that
// writes it rounds it, so the split cannot change a bit. Backwards may write over the slot, so that a forward has one.
// I followed by W, whenever that is, leaves the bits of the whole backward.
//
// Recomputed blocks (job.recompute) have their input in the activation slot and nothing else. Their first forward saves
// into scratch memory that the next one writes over; their backward runs behind a second forward, with the weights,
// documents and masks of the first, one block at a time. It saves into the same scratch, or, in an I, into a
// recomputation slot: there it stays until the W.
//
// Errors: those of the TokenSource; InvalidArgument for a call whose tensors do not fit the stage, or that splits a
// backward where the slots have no room for it; ResourceExhausted where recomputation slots run out; Internal for
// weights of a version that is not held. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/device/slab.h"
#include "kernels/ops/operators.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/rank_place.h"
#include "worker/buffers/slot_ledger.h"
#include "worker/collectives/group_member.h"
#include "worker/collectives/wait_meter.h"
#include "worker/data/token_source.h"
#include "worker/model/layer_timer.h"
#include "worker/model/layout.h"
#include "worker/model/parameters.h"
#include "worker/model/stage.h"
#include "worker/model/stage_payloads.h"
#include "worker/model/weight_versions.h"
#include "worker/model/workspace.h"

namespace penstock::worker {

class HeadItem;
class ModelItem;
struct ItemCall;

// What the stages of a rank share. Everything outlives them.
struct StageEnvironment {
  const plan::JobSpec& job;
  kernels::Operators& operators;
  const ParameterStore& parameters;  // holds the parameters of the stage's items
  const Workspace& workspace;
  TokenSource* tokens = nullptr;       // needed where ModelStage::reads_tokens
  bool evaluation = false;             // forwards only, which form no gradient
  WeightVersions* versions = nullptr;  // told which weights a call reads; null: there is one version
  plan::RankPlace place{};             // in the job
  // Of the stage that needs most: RecomputationBytes::scratch. Nothing in it survives an action.
  kernels::SlabView recomputation_scratch{};
  // Among which the experts of its blocks are shared out; null: all are here. Connected before the first step.
  const GroupMember* expert_group = nullptr;
  const StagePayloads* payloads = nullptr;  // of the stage; needed where a block has experts
  WaitMeter* waits = nullptr;               // told how long its computations wait for the expert group
  const Clock* clock = nullptr;             // of the times of layers; null: they are not timed
};

// What a stage keeps its activations in.
struct StageSlots {
  kernels::SlabView activations;  // whole slots of slot_bytes
  kernels::SlabView
      recomputations{};  // whole slots of RecomputationBytes::slot (plan/schedule/recomputation_slots.h)
};

struct RecomputationBytes {
  int64_t scratch = 0;      // of the widest block that is recomputed
  int64_t slot = 0;         // of all of them; 0 where no backward is split
  int64_t slot_routes = 0;  // of that, what routers decided
};

class ModelStage final : public Stage {
 public:
  // Bytes of one activation slot of a stage of these items, from what it lays out.
  static int64_t slot_bytes(const plan::JobSpec& job, const std::vector<plan::Item>& items,
                            plan::BackwardForm backward);
  // Of it, what routers decided.
  static int64_t route_bytes(const plan::JobSpec& job, const std::vector<plan::Item>& items);
  static RecomputationBytes recomputation_bytes(const plan::JobSpec& job,
                                                const std::vector<plan::Item>& items,
                                                plan::BackwardForm backward);
  // Whether a stage of these items asks for tokens: the ends of the model do, and where attention stays inside
  // documents every stage with a block.
  static bool reads_tokens(const plan::JobSpec& job, const std::vector<plan::Item>& items);

  // `items` are contiguous in model order. The slots outlive the stage. With BackwardForm::Split backwards may be
  // whole, too.
  ModelStage(StageIndex index, const std::vector<plan::Item>& items, const StageEnvironment& environment,
             const StageSlots& slots, plan::BackwardForm backward = plan::BackwardForm::Fused);
  ~ModelStage() override;

  StageIndex index() const override { return index_; }
  // Runs a forward and a backward of tokens that are all 0 in slot 0, so that every kernel, table and scratch buffer
  // exists before the first step, and the fingerprint knows the kernels. Gradients are left in the parameters, to be
  // made zero.
  Status warm_up();
  void begin_step(StepIndex step) override;
  void forget_forwards() override;
  Duration take_waited() override {
    return environment_.waits == nullptr ? Duration::zero() : environment_.waits->take();
  }
  void time_layers(bool on) override { timer_.time_layers(on); }
  std::span<const LayerTime> layer_times() const override { return timer_.times(); }
  Status forward(const StageCall& call) override;
  Status backward(const StageCall& call) override;
  Status input_gradient(const StageCall& call) override;
  Status weight_gradient(const StageCall& call) override;
  bool has_loss() const override { return head_ != nullptr; }
  double loss_sum() const override;
  int64_t loss_targets() const override;
  std::vector<const ExpertLoad*> expert_loads(StepIndex step) const override;

 private:
  Status check(const StageCall& call, plan::ActionKind kind) const;
  Status check_slot(const StageCall& call) const;
  Status check_boundary(kernels::TensorView tensor, bool expected, const char* what) const;
  ItemCall item_call(const StageCall& call) const;
  // `on` for one of the items: with memory of its own, `recomputations` or scratch, where that is recomputed.
  ItemCall call_of(size_t item, const ItemCall& on, void* recomputations = nullptr) const;
  Status recompute(size_t item, ItemCall call, kernels::TensorView output);
  bool recomputes() const { return recomputation_bytes_.scratch > 0; }
  bool is_recomputed(size_t item) const { return recomputed_at_[item] >= 0; }
  MicrobatchIndex microbatch_of_step(const StageCall& call) const;
  Status prepare(const StageCall& call, Pass pass) const;
  kernels::TensorView keep_output_gradient(const ItemCall& call, kernels::TensorView gradient) const;

  StageIndex index_;
  StageEnvironment environment_;
  kernels::SlabView activations_;
  std::vector<std::unique_ptr<ModelItem>> items_;
  std::vector<int64_t>
      recomputed_at_;           // beside items_: where in a recomputation slot; -1: it is not recomputed
  HeadItem* head_ = nullptr;    // the last of items_, on the loss stage
  bool has_embedding_ = false;  // the first of items_
  plan::BackwardForm backward_;
  int64_t slot_bytes_ = 0;
  RecomputationBytes recomputation_bytes_;
  LayerTimer timer_;
  SlotLedger recomputation_slots_;
  std::vector<SlotLease> recomputed_;  // by activation slot: what its I has recomputed for its W
};

}  // namespace penstock::worker
