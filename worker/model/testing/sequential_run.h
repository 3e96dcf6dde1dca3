// A whole model on one thread of control, cut into stages any way a test likes: what the pipeline must equal.
//
// Every stage owns its own parameters, as if it were alone on its rank, and passes boundary tensors by value.
// Errors stop the process: tests only.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/device/compute_threads.h"
#include "kernels/ops/operators.h"
#include "worker/model/activation_type.h"
#include "worker/model/model_stage.h"

namespace penstock::worker {

// [embedding, 0, .., L-1, head] cut after the given numbers of items; all on one stage when there are none.
inline plan::Split cut(const plan::ModelSpec& model, const std::vector<size_t>& counts = {}) {
  const std::vector<plan::Item> items = plan::model_items(model);
  if (counts.empty()) return {items};
  plan::Split split;
  auto next = items.begin();
  for (const size_t count : counts) {
    split.emplace_back(next, next + static_cast<std::ptrdiff_t>(count));
    next += static_cast<std::ptrdiff_t>(count);
  }
  PENSTOCK_CHECK(next == items.end());
  return split;
}

// Of the slots for payloads that each pool has.
struct PayloadOptions {
  int slots = 0;  // 0: one a microbatch
  bool checks_memory = kChecksMemory;
};

class SequentialRun {
 public:
  // `place`: whose pipeline's microbatches it runs, where pipelines stand side by side.
  SequentialRun(const plan::JobSpec& job, const plan::Split& split, int threads = 1,
                plan::BackwardForm backward = plan::BackwardForm::Fused, const PayloadOptions& payload = {},
                const plan::RankPlace& place = {})
      : job_(job),
        place_(place),
        backward_(backward),
        payload_(payload),
        threads_(threads),
        operators_(kernels::make_cpu_operators(threads_)),
        workspace_(Workspace::create(job_).value()),
        tokens_(TokenSource::open(job_).value()) {
    for (const std::vector<plan::Item>& items : split) add_stage(items);
  }

  size_t stages() const { return stages_.size(); }
  ModelStage& stage(size_t index) { return *stages_[index]->stage; }
  const StagePayloads& payloads(size_t stage) const { return *stages_[stage]->payloads; }
  ParameterStore& parameters(size_t stage) { return stages_[stage]->parameters; }
  kernels::Operators& operators() { return *operators_; }
  double loss_sum() const { return stages_.back()->stage->loss_sum(); }
  // What the stage passed on in the last forward: [tokens, hidden].
  std::span<const float> activation(size_t stage) const {
    const kernels::TensorView view = stages_[stage]->activation_view;
    return {view.f32(), static_cast<size_t>(view.elements())};
  }
  // What the stage passed back in the last backward, but for the first stage.
  kernels::TensorView gradient(size_t stage) const { return stages_[stage]->gradient_view; }

  // Every parameter of the model, in model order.
  std::vector<Parameter> parameters() const {
    std::vector<Parameter> all;
    for (const auto& each : stages_) {
      all.insert(all.end(), each->parameters.parameters().begin(), each->parameters.parameters().end());
    }
    return all;
  }

  void begin_step(int64_t step) {
    step_ = StepIndex(step);
    for (const auto& each : stages_) {
      each->parameters.zero_gradients(*operators_);
      each->parameters.pack(*operators_);  // a test may have written weights
      each->stage->begin_step(step_);
    }
  }

  // The microbatch's activation slot is its own index: all may be in flight at once.
  void forward(int64_t microbatch) {
    for (size_t s = 0; s < stages_.size(); ++s) forward_stage(s, microbatch);
  }
  void backward(int64_t microbatch) {
    for (size_t s = stages_.size(); s-- > 0;) backward_stage(s, microbatch);
  }
  void input_gradient(int64_t microbatch) {
    for (size_t s = stages_.size(); s-- > 0;) backward_stage(s, microbatch, &ModelStage::input_gradient);
  }
  // One stage's part of these.
  void forward_stage(size_t s, int64_t microbatch) {
    StageCall call = call_for(microbatch);
    if (s > 0) call.input = stages_[s - 1]->activation_view;
    if (s + 1 < stages_.size()) call.output = stages_[s]->activation_view;
    require(stages_[s]->stage->forward(call));
  }
  void backward_stage(size_t s, int64_t microbatch,
                      Status (ModelStage::*kind)(const StageCall&) = &ModelStage::backward) {
    StageCall call = call_for(microbatch);
    if (s + 1 < stages_.size()) call.input = stages_[s + 1]->gradient_view;
    if (s > 0) call.output = stages_[s]->gradient_view;
    require((stages_[s]->stage.get()->*kind)(call));
  }
  // Behind input_gradient, whenever that was.
  void weight_gradient(int64_t microbatch) {
    for (const auto& each : stages_) require(each->stage->weight_gradient(call_for(microbatch)));
  }

  // What the owner of a tied matrix does after the last backward: embedding + head, in this order.
  void sum_tied_gradients() {
    const Parameter* head = find_tied(&ParameterStore::tied_head);
    const Parameter* embedding = find_tied(&ParameterStore::tied_embedding);
    if (head != nullptr) operators_->add(embedding->gradient, head->gradient, embedding->gradient);
  }
  // And after the optimizer: the head's copy becomes the owner's again.
  void share_tied_weight() {
    const Parameter* head = find_tied(&ParameterStore::tied_head);
    const Parameter* embedding = find_tied(&ParameterStore::tied_embedding);
    if (head == nullptr || head->weight.data() == embedding->weight.data()) return;
    operators_->copy(embedding->weight, head->weight);
  }

  // One step, one microbatch after the other.
  void run_step(int64_t step) {
    begin_step(step);
    for (int64_t microbatch = 0; microbatch < job_.microbatches(); ++microbatch) {
      forward(microbatch);
      backward(microbatch);
    }
    sum_tied_gradients();
  }

  double loss() const { return loss_sum() / static_cast<double>(stages_.back()->stage->loss_targets()); }

 private:
  struct StageState {
    ParameterStore parameters;
    kernels::Slab activations;
    kernels::Slab recomputations;  // a slot for each microbatch
    kernels::Slab scratch;
    kernels::Slab boundary;
    kernels::TensorView activation_view;  // what the stage passes on
    kernels::TensorView gradient_view;    // what it passes back
    std::unique_ptr<StagePayloads> payloads;
    std::unique_ptr<ModelStage> stage;
  };

  const Parameter* find_tied(const Parameter* (ParameterStore::*which)() const) const {
    for (const auto& each : stages_) {
      if (const Parameter* found = (each->parameters.*which)()) return found;
    }
    return nullptr;
  }

  static void require(const Status& status) { PENSTOCK_CHECK(status.ok(), "{}", message(status)); }

  StageCall call_for(int64_t microbatch) const {
    return {.step = step_, .microbatch = MicrobatchIndex(microbatch), .slot = static_cast<int>(microbatch)};
  }

  void add_stage(const std::vector<plan::Item>& items) {
    const int64_t slab_bytes = ModelStage::slot_bytes(job_, items, backward_) * job_.microbatches();
    const RecomputationBytes again = ModelStage::recomputation_bytes(job_, items, backward_);
    const kernels::DataType type = activation_type(job_);
    const int64_t tokens = job_.tokens_per_microbatch();
    const int64_t boundary_bytes = tokens * job_.model.hidden_size * kernels::size_bytes(type);
    auto state = std::unique_ptr<StageState>(
        new StageState{ParameterStore::create(job_.model, items, type).value(),
                       kernels::Slab::allocate(slab_bytes, "activations").value(),
                       kernels::Slab::allocate(again.slot * job_.microbatches(), "recomputed").value(),
                       kernels::Slab::allocate(again.scratch, "recomputed").value(),
                       kernels::Slab::allocate(2 * boundary_bytes, "boundary").value(),
                       {},
                       {},
                       nullptr,
                       nullptr});
    const kernels::TensorView both(state->boundary.view().data, type, {2 * tokens, job_.model.hidden_size});
    state->activation_view = both.rows(0, tokens);
    state->gradient_view = both.rows(tokens, tokens);
    state->parameters.initialise(job_.model, job_.train.seed);
    state->parameters.pack(*operators_);
    const StageIndex index(static_cast<int64_t>(stages_.size()));
    const auto microbatches = static_cast<int>(job_.microbatches());
    const int slots = payload_.slots > 0 ? payload_.slots : microbatches;
    const StagePayloadsShape payloads{.stage = index,
                                      .activation_slots = microbatches,
                                      .slots = {slots, slots, slots},
                                      .checks_memory = payload_.checks_memory};
    state->payloads = StagePayloads::create(job_, items, payloads, clock_).value();
    StageEnvironment environment{job_, *operators_, state->parameters, workspace_, &tokens_};
    environment.place = place_;
    environment.recomputation_scratch = state->scratch.view();
    environment.payloads = state->payloads.get();
    state->stage = std::make_unique<ModelStage>(
        index, items, environment, StageSlots{state->activations.view(), state->recomputations.view()},
        backward_);
    stages_.push_back(std::move(state));
  }

  plan::JobSpec job_;
  plan::RankPlace place_;
  plan::BackwardForm backward_;
  PayloadOptions payload_;
  SystemClock clock_;
  kernels::ComputeThreads threads_;
  std::unique_ptr<kernels::Operators> operators_;
  Workspace workspace_;
  TokenSource tokens_;
  StepIndex step_;
  std::vector<std::unique_ptr<StageState>> stages_;
};

}  // namespace penstock::worker
