#include "worker/model/model_stage.h"

#include <algorithm>

#include "base/check.h"
#include "worker/buffers/memory_checks.h"
#include "worker/model/activation_type.h"
#include "worker/model/blocks/embedding.h"
#include "worker/model/blocks/head.h"
#include "worker/model/blocks/item.h"
#include "worker/model/blocks/transformer_block.h"
#include "worker/model/layout.h"

namespace penstock::worker {
namespace {

using plan::BackwardForm;

void place(const plan::JobSpec& job, const plan::Item& item, BackwardForm backward, ItemLayout layout) {
  switch (item.kind) {
    case plan::ItemKind::Embedding:
      return EmbeddingItem::place(job, backward, layout.saved);
    case plan::ItemKind::Block:
      return TransformerBlock::place(job, item.layer, backward, layout);
    case plan::ItemKind::Head:
      return HeadItem::place(job, layout.saved);
  }
}

std::unique_ptr<ModelItem> make(const StageEnvironment& environment, const plan::Item& item,
                                BackwardForm backward, ItemLayout layout) {
  const plan::JobSpec& job = environment.job;
  const ParameterStore& parameters = environment.parameters;
  PENSTOCK_CHECK(environment.tokens != nullptr || !ModelStage::reads_tokens(job, {item}), "{} needs tokens",
                 plan::to_string(item));
  switch (item.kind) {
    case plan::ItemKind::Embedding:
      return std::make_unique<EmbeddingItem>(job, parameters, *environment.tokens, backward, layout.saved);
    case plan::ItemKind::Block:
      return std::make_unique<TransformerBlock>(environment, item.layer, backward, layout);
    case plan::ItemKind::Head:
      return std::make_unique<HeadItem>(job, parameters, *environment.tokens, layout.saved);
  }
  return nullptr;
}

// Where a stage's items have what they keep. Blocks that are recomputed stand one after another in a recomputation
// slot, each at a place of its own; in scratch memory each stands at its begin.
struct StageLayout {
  Layout slot;
  std::vector<int64_t> recomputed_at;  // beside the items; -1: not recomputed
  int64_t recomputed_bytes = 0;
  int64_t recomputed_routes = 0;
  int64_t widest_recomputed = 0;
};

// Calls place(item, its layout) for one item after the other.
template <typename Place>
StageLayout lay_out(const plan::JobSpec& job, const std::vector<plan::Item>& items, const Place& place) {
  StageLayout stage;
  for (const plan::Item& item : items) {
    const bool is_recomputed = item.kind == plan::ItemKind::Block && job.recomputes(item.layer);
    Layout own;
    place(item, ItemLayout{stage.slot, is_recomputed ? own : stage.slot});
    stage.recomputed_at.push_back(is_recomputed ? stage.recomputed_bytes : -1);
    stage.recomputed_bytes += own.bytes();
    stage.recomputed_routes += own.route_bytes();
    stage.widest_recomputed = std::max(stage.widest_recomputed, own.bytes());
  }
  return stage;
}

int whole_slots(const kernels::SlabView& slab, int64_t slot_bytes) {
  return slot_bytes == 0 ? 0 : static_cast<int>(slab.bytes / slot_bytes);
}

StageLayout layout_of(const plan::JobSpec& job, const std::vector<plan::Item>& items, BackwardForm backward) {
  return lay_out(job, items,
                 [&](const plan::Item& item, ItemLayout layout) { place(job, item, backward, layout); });
}

}  // namespace

int64_t ModelStage::slot_bytes(const plan::JobSpec& job, const std::vector<plan::Item>& items,
                               BackwardForm backward) {
  return layout_of(job, items, backward).slot.bytes();
}

int64_t ModelStage::route_bytes(const plan::JobSpec& job, const std::vector<plan::Item>& items) {
  return layout_of(job, items, BackwardForm::Fused).slot.route_bytes();
}

RecomputationBytes ModelStage::recomputation_bytes(const plan::JobSpec& job,
                                                   const std::vector<plan::Item>& items,
                                                   BackwardForm backward) {
  const StageLayout layout = layout_of(job, items, backward);
  const bool has_slots = backward == BackwardForm::Split;
  return {.scratch = layout.widest_recomputed,
          .slot = has_slots ? layout.recomputed_bytes : 0,
          .slot_routes = has_slots ? layout.recomputed_routes : 0};
}

bool ModelStage::reads_tokens(const plan::JobSpec& job, const std::vector<plan::Item>& items) {
  const bool documents = job.data.end_of_document >= 0;
  return std::any_of(items.begin(), items.end(),
                     [&](const plan::Item& item) { return item.kind != plan::ItemKind::Block || documents; });
}

ModelStage::ModelStage(StageIndex index, const std::vector<plan::Item>& items,
                       const StageEnvironment& environment, const StageSlots& slots, BackwardForm backward)
    : index_(index),
      environment_(environment),
      activations_(slots.activations),
      backward_(backward),
      recomputation_bytes_(recomputation_bytes(environment.job, items, backward)),
      timer_(environment.job, items, environment.clock, environment.waits),
      recomputation_slots_({.stage = index, .holds = "recomputation"},
                           whole_slots(slots.recomputations, recomputation_bytes_.slot),
                           {.data = slots.recomputations.data,
                            .slot_bytes = recomputation_bytes_.slot,
                            .poisons = kChecksMemory}) {
  PENSTOCK_CHECK(!items.empty(), "stage {}", index.value);
  StageLayout layout = lay_out(environment.job, items, [&](const plan::Item& item, ItemLayout of_item) {
    items_.push_back(make(environment_, item, backward, of_item));
  });
  PENSTOCK_CHECK_LE(layout.widest_recomputed, environment.recomputation_scratch.bytes);
  slot_bytes_ = layout.slot.bytes();
  recomputed_.resize(static_cast<size_t>(whole_slots(activations_, slot_bytes_)));
  recomputed_at_ = std::move(layout.recomputed_at);
  has_embedding_ = items.front().kind == plan::ItemKind::Embedding;
  if (items.back().kind == plan::ItemKind::Head) head_ = static_cast<HeadItem*>(items_.back().get());
}

ModelStage::~ModelStage() = default;

void ModelStage::begin_step(StepIndex) {
  for (const std::unique_ptr<ModelItem>& item : items_) item->begin_step();
}

void ModelStage::forget_forwards() {
  for (const std::unique_ptr<ModelItem>& item : items_) item->forget_forwards();
}

std::vector<const ExpertLoad*> ModelStage::expert_loads(StepIndex step) const {
  std::vector<const ExpertLoad*> loads;
  for (const std::unique_ptr<ModelItem>& item : items_) {
    if (const ExpertLoad* load = item->expert_load(step)) loads.push_back(load);
  }
  return loads;
}

double ModelStage::loss_sum() const {
  return head_ == nullptr ? 0 : head_->loss().total();
}

int64_t ModelStage::loss_targets() const {
  return head_ == nullptr ? 0 : head_->targets();
}

Status ModelStage::forward(const StageCall& call) {
  PENSTOCK_RETURN_IF_ERROR(check(call, plan::ActionKind::Forward));
  PENSTOCK_RETURN_IF_ERROR(prepare(call, Pass::Forward));
  const ItemCall on = item_call(call);
  if (!has_embedding_) environment_.operators.copy(call.input, items_.front()->saved_residual(on.input_slot));
  for (size_t i = 0; i < items_.size(); ++i) {
    const bool last = i + 1 == items_.size();
    const kernels::TensorView output = last ? call.output : items_[i + 1]->saved_residual(on.input_slot);
    ItemCall here = call_of(i, on);
    here.keeps = on.keeps && !is_recomputed(i);
    PENSTOCK_RETURN_IF_ERROR(timer_.forward(i, [&] { return items_[i]->forward(here, output); }));
  }
  return ok_status();
}

Status ModelStage::backward(const StageCall& call) {
  PENSTOCK_RETURN_IF_ERROR(check(call, plan::ActionKind::Backward));
  PENSTOCK_RETURN_IF_ERROR(prepare(call, Pass::Backward));
  const ItemCall on = item_call(call);
  kernels::TensorView gradient = call.input;
  for (size_t i = items_.size(); i-- > 0;) {
    const kernels::TensorView input_gradient = i == 0 ? call.output : environment_.workspace.edge[i % 2];
    const ItemCall here = call_of(i, on);
    const auto pass_back = [&]() -> Status {
      if (is_recomputed(i)) PENSTOCK_RETURN_IF_ERROR(recompute(i, here, input_gradient));
      return items_[i]->backward(here, gradient, input_gradient);
    };
    PENSTOCK_RETURN_IF_ERROR(timer_.backward(i, pass_back));
    gradient = input_gradient;
  }
  return ok_status();
}

// Every gradient is written straight to where the item before keeps it for its W.
Status ModelStage::input_gradient(const StageCall& call) {
  PENSTOCK_RETURN_IF_ERROR(check(call, plan::ActionKind::InputGradient));
  PENSTOCK_RETURN_IF_ERROR(prepare(call, Pass::Backward));
  void* recomputed = nullptr;
  if (recomputes()) {
    SlotLease& lease = recomputed_[static_cast<size_t>(call.slot)];
    PENSTOCK_ASSIGN_OR_RETURN(lease, recomputation_slots_.take_lowest(call.microbatch));
    recomputed = lease.data();
  }
  const ItemCall on = item_call(call);
  kernels::TensorView gradient = keep_output_gradient(call_of(items_.size() - 1, on, recomputed), call.input);
  for (size_t i = items_.size(); i-- > 0;) {
    kernels::TensorView input_gradient = call.output;
    if (i > 0) {
      const kernels::TensorView kept =
          items_[i - 1]->saved_output_gradient(call_of(i - 1, on, recomputed).slot);
      input_gradient = kept.empty() ? environment_.workspace.edge[i % 2] : kept;
    }
    const ItemCall here = call_of(i, on, recomputed);
    const auto pass_back = [&]() -> Status {
      if (is_recomputed(i)) PENSTOCK_RETURN_IF_ERROR(recompute(i, here, input_gradient));
      return items_[i]->input_gradient(here, gradient, input_gradient);
    };
    PENSTOCK_RETURN_IF_ERROR(timer_.backward(i, pass_back));
    gradient = input_gradient;
  }
  return ok_status();
}

// What comes from another stage stands in a boundary slot, which is free after I.
kernels::TensorView ModelStage::keep_output_gradient(const ItemCall& call,
                                                     kernels::TensorView gradient) const {
  const kernels::TensorView kept = items_.back()->saved_output_gradient(call.slot);
  if (kept.empty()) return gradient;
  call.operators.copy(gradient, kept);
  return kept;
}

Status ModelStage::weight_gradient(const StageCall& call) {
  PENSTOCK_RETURN_IF_ERROR(check(call, plan::ActionKind::WeightGradient));
  const ItemCall on = item_call(call);
  SlotLease lease = std::move(recomputed_[static_cast<size_t>(call.slot)]);
  if (recomputes() && !lease.held()) {
    return internal_error("stage {}: W{} of a microbatch whose I has not run", index_.value,
                          call.microbatch.value);
  }
  void* const recomputed = lease.held() ? lease.data() : nullptr;
  for (size_t i = items_.size(); i-- > 0;) {
    PENSTOCK_RETURN_IF_ERROR(timer_.backward(i, [&] {
      items_[i]->weight_gradient(call_of(i, on, recomputed));
      return ok_status();
    }));
  }
  return ok_status();
}

// The output goes where the input gradient will: nobody asks for it twice.
Status ModelStage::recompute(size_t item, ItemCall call, kernels::TensorView output) {
  call.again = true;
  return items_[item]->forward(call, output);
}

Status ModelStage::warm_up() {
  const plan::JobSpec& job = environment_.job;
  const int64_t elements = job.tokens_per_microbatch() * job.model.hidden_size;
  const kernels::DataType type = activation_type(job);
  PENSTOCK_ASSIGN_OR_RETURN(const kernels::Slab slab,
                            kernels::Slab::allocate(2 * elements * kernels::size_bytes(type), "warming up"));
  const kernels::TensorView both(slab.view().data, type,
                                 {2 * job.tokens_per_microbatch(), job.model.hidden_size});
  const kernels::TensorView first = both.rows(0, job.tokens_per_microbatch());
  const kernels::TensorView second = both.rows(job.tokens_per_microbatch(), job.tokens_per_microbatch());
  const kernels::TensorView none;
  StageCall call{.step = StepIndex(0), .microbatch = MicrobatchIndex(0), .warm_up = true};
  call.input = has_embedding_ ? none : first;
  call.output = head_ != nullptr ? none : second;
  PENSTOCK_RETURN_IF_ERROR(forward(call));
  call.input = head_ != nullptr ? none : second;
  call.output = has_embedding_ ? none : first;
  PENSTOCK_RETURN_IF_ERROR(backward(call));
  begin_step(call.step);
  return ok_status();
}

// The weights and the documents that a computation reads; a weight gradient reads neither.
Status ModelStage::prepare(const StageCall& call, Pass pass) const {
  if (environment_.versions != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(environment_.versions->read(call.weight_version, pass));
  }
  const kernels::TensorView starts = environment_.workspace.document_starts;
  if (starts.empty() || environment_.tokens == nullptr || call.warm_up) return ok_status();
  const std::span<int32_t> values(starts.i32(), static_cast<size_t>(starts.elements()));
  return environment_.tokens->microbatch(call.step, microbatch_of_step(call), {}, {}, values);
}

MicrobatchIndex ModelStage::microbatch_of_step(const StageCall& call) const {
  return plan::microbatch_of_step(environment_.job.parallel, environment_.place.pipeline, call.microbatch);
}

ItemCall ModelStage::item_call(const StageCall& call) const {
  void* const slot = static_cast<char*>(activations_.data) + call.slot * slot_bytes_;
  return {.step = call.step,
          .microbatch = call.microbatch,
          .microbatch_of_step = microbatch_of_step(call),
          .slot = slot,
          .input_slot = slot,
          .slot_index = call.slot,
          .operators = environment_.operators,
          .workspace = environment_.workspace,
          .warm_up = call.warm_up,
          .evaluation = environment_.evaluation,
          .keeps = !environment_.evaluation,
          .document_starts = environment_.workspace.document_starts};
}

ItemCall ModelStage::call_of(size_t item, const ItemCall& on, void* recomputations) const {
  if (!is_recomputed(item)) return on;
  ItemCall call = on;
  call.slot = recomputations == nullptr ? environment_.recomputation_scratch.data
                                        : static_cast<char*>(recomputations) + recomputed_at_[item];
  return call;
}

Status ModelStage::check(const StageCall& call, plan::ActionKind kind) const {
  PENSTOCK_RETURN_IF_ERROR(check_slot(call));
  if (plan::is_half_backward(kind) && backward_ == BackwardForm::Fused) {
    return invalid_argument("stage {}: {}{}, but its slots are laid out for whole backwards", index_.value,
                            plan::letter(kind), call.microbatch.value);
  }
  const bool forward = kind == plan::ActionKind::Forward;
  const bool has_edges = kind != plan::ActionKind::WeightGradient;
  const bool has_lower_edge = has_edges && !has_embedding_;
  const bool has_upper_edge = has_edges && head_ == nullptr;
  PENSTOCK_RETURN_IF_ERROR(check_boundary(call.input, forward ? has_lower_edge : has_upper_edge, "input"));
  return check_boundary(call.output, forward ? has_upper_edge : has_lower_edge, "output");
}

Status ModelStage::check_slot(const StageCall& call) const {
  if (call.slot >= 0 && (call.slot + 1) * slot_bytes_ <= activations_.bytes) return ok_status();
  return invalid_argument("stage {}: activation slot {} of {} slots of {} bytes", index_.value, call.slot,
                          activations_.bytes / slot_bytes_, slot_bytes_);
}

Status ModelStage::check_boundary(kernels::TensorView tensor, bool expected, const char* what) const {
  if (tensor.empty() && !expected) return ok_status();
  if (tensor.empty() || !expected) {
    return invalid_argument("stage {}: {} tensor {}, the stage has {} at this edge", index_.value, what,
                            tensor.empty() ? "missing" : "given", expected ? "a boundary" : "none");
  }
  const int64_t tokens = environment_.job.tokens_per_microbatch();
  const int64_t hidden = environment_.job.model.hidden_size;
  const bool fits = tensor.rank() == 2 && tensor.size(0) == tokens && tensor.size(1) == hidden &&
                    tensor.type() == activation_type(environment_.job);
  if (fits) return ok_status();
  return invalid_argument("stage {}: {} tensor of {} bytes, [{}, {}] {} expected", index_.value, what,
                          tensor.bytes(), tokens, hidden, environment_.job.train.dtype);
}

}  // namespace penstock::worker
