// One rank of those that share out a block's experts: a stage of that block alone, with memory and parameters of its own.
// Tests only: errors of construction stop the process.
//
// Inputs and gradients of outputs are made of the number of a microbatch in its step, so that ranks, and runs that cut the
// step in another way, see the same tokens.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "worker/model/activation_type.h"
#include "worker/model/model_stage.h"

namespace penstock::worker {

// Normal values, [rows, hidden] of the activations' type.
class RandomRows {
 public:
  RandomRows(const plan::JobSpec& job, int64_t rows)
      : type_(activation_type(job)),
        hidden_(job.model.hidden_size),
        rows_(rows),
        bytes_(static_cast<size_t>(rows * hidden_ * kernels::size_bytes(type_))) {}

  // One sequence, made of its number in the step and a seed.
  void fill(int64_t place, int64_t sequence_length, int64_t number, uint32_t seed) {
    std::mt19937 random(seed + static_cast<uint32_t>(number));
    std::normal_distribution<float> normal;
    const int64_t elements = sequence_length * hidden_;
    for (int64_t i = 0; i < elements; ++i) set(place * elements + i, normal(random));
  }
  kernels::TensorView view() { return {bytes_.data(), type_, {rows_, hidden_}}; }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  void set(int64_t element, float value) {
    if (type_ == kernels::DataType::Float32) {
      view().f32()[element] = value;
    } else {
      view().bf16()[element] = kernels::to_bfloat16(value);
    }
  }

  kernels::DataType type_;
  int64_t hidden_;
  int64_t rows_;
  std::vector<char> bytes_;
};

class BlockRank {
 public:
  static constexpr uint32_t kInputSeed = 1, kGradientSeed = 900'001;  // of inputs and of gradients of outputs

  // `group`: null where the rank has all experts.
  BlockRank(const plan::JobSpec& job, int expert_rank, const GroupMember* group)
      : job_(job),
        threads_(1),
        operators_(kernels::make_cpu_operators(threads_)),
        place_{.pipeline_rank = RankIndex(0), .pipeline = expert_rank, .expert_rank = expert_rank},
        parameters_(
            ParameterStore::create(job_.model, kItems, activation_type(job_), plan::experts_at(job_, place_))
                .value()),
        workspace_(Workspace::create(job_).value()) {
    const auto slots = static_cast<int>(job_.microbatches());
    const RecomputationBytes again = ModelStage::recomputation_bytes(job_, kItems, kForm);
    activations_ =
        kernels::Slab::allocate(slots * ModelStage::slot_bytes(job_, kItems, kForm), "activations").value();
    recomputations_ = kernels::Slab::allocate(slots * again.slot, "recomputed").value();
    scratch_ = kernels::Slab::allocate(again.scratch, "recomputed").value();
    payloads_ =
        StagePayloads::create(
            job_, kItems, {.stage = StageIndex(0), .activation_slots = slots, .slots = {slots, slots, slots}},
            clock_)
            .value();
    parameters_.initialise(job_.model, job_.train.seed);
    stage_ = std::make_unique<ModelStage>(StageIndex(0), kItems,
                                          StageEnvironment{.job = job_,
                                                           .operators = *operators_,
                                                           .parameters = parameters_,
                                                           .workspace = workspace_,
                                                           .place = place_,
                                                           .recomputation_scratch = scratch_.view(),
                                                           .expert_group = group,
                                                           .payloads = payloads_.get()},
                                          StageSlots{activations_.view(), recomputations_.view()}, kForm);
    PENSTOCK_CHECK(stage_->warm_up().ok());
    parameters_.pack(*operators_);
  }

  ParameterStore& parameters() { return parameters_; }
  const StagePayloads& payloads() const { return *payloads_; }
  ModelStage& stage() { return *stage_; }
  // Made zero, and packed weights made of what tests wrote.
  void begin_step() {
    parameters_.zero_gradients(*operators_);
    parameters_.pack(*operators_);
    stage_->begin_step(StepIndex(0));
  }

  // Which sequences of the step its microbatches have, by the microbatch's number and the place in it: instead of one
  // after the other.
  void take_sequences(std::function<int64_t(int64_t, int64_t)> sequence_of) {
    sequence_of_ = std::move(sequence_of);
  }

  // Of the calls that follow; those of the step before may still be under way.
  void go_on_to(StepIndex step) { step_ = step; }

  Status forward(int64_t microbatch) { return run(microbatch, &ModelStage::forward, kInputSeed, &outputs_); }
  Status backward(int64_t microbatch) {
    return run(microbatch, &ModelStage::backward, kGradientSeed, &input_gradients_);
  }
  Status input_gradient(int64_t microbatch) {
    return run(microbatch, &ModelStage::input_gradient, kGradientSeed, &input_gradients_);
  }
  Status weight_gradient(int64_t microbatch) { return stage_->weight_gradient(call_for(microbatch)); }

  // By the number in the step: bytes of outputs and input gradients of the forwards and backwards so far.
  const std::map<int64_t, std::vector<char>>& outputs() const { return outputs_; }
  const std::map<int64_t, std::vector<char>>& input_gradients() const { return input_gradients_; }
  std::map<std::string, std::vector<float>> gradients() const {
    std::map<std::string, std::vector<float>> gradients;
    for (const Parameter& parameter : parameters_.parameters()) {
      const float* const values = parameter.gradient.f32();
      gradients[parameter.spec.name] = {values, values + parameter.gradient.elements()};
    }
    return gradients;
  }

 private:
  static constexpr plan::BackwardForm kForm = plan::BackwardForm::Split;
  inline static const std::vector<plan::Item> kItems = {{plan::ItemKind::Block, LayerIndex(0)}};

  StageCall call_for(int64_t microbatch) const {
    return {.step = step_, .microbatch = MicrobatchIndex(microbatch), .slot = static_cast<int>(microbatch)};
  }
  Status run(int64_t microbatch, Status (ModelStage::*action)(const StageCall&), uint32_t seed,
             std::map<int64_t, std::vector<char>>* results) {
    const int64_t number =
        plan::microbatch_of_step(job_.parallel, place_.pipeline, MicrobatchIndex(microbatch)).value;
    RandomRows in(job_, job_.tokens_per_microbatch()), out(job_, job_.tokens_per_microbatch());
    for (int64_t s = 0; s < job_.train.microbatch_size; ++s) {
      in.fill(s, job_.data.sequence_length, sequence_of_(number, s), seed);
    }
    StageCall call = call_for(microbatch);
    call.input = in.view();
    call.output = out.view();
    PENSTOCK_RETURN_IF_ERROR((stage_.get()->*action)(call));
    (*results)[number] = out.bytes();
    return ok_status();
  }

  plan::JobSpec job_;
  SystemClock clock_;
  kernels::ComputeThreads threads_;
  std::unique_ptr<kernels::Operators> operators_;
  plan::RankPlace place_;
  ParameterStore parameters_;
  Workspace workspace_;
  kernels::Slab activations_, recomputations_, scratch_;
  std::unique_ptr<StagePayloads> payloads_;
  std::unique_ptr<ModelStage> stage_;
  std::function<int64_t(int64_t, int64_t)> sequence_of_ = [this](int64_t microbatch, int64_t place) {
    return microbatch * job_.train.microbatch_size + place;
  };
  StepIndex step_{0};
  std::map<int64_t, std::vector<char>> outputs_, input_gradients_;
};

}  // namespace penstock::worker
