#include "worker/executor/rank_model.h"

#include <algorithm>

#include "plan/schedule/recomputation_slots.h"
#include "plan/schedule/weight_versions.h"
#include "worker/checkpoint/weights.h"
#include "worker/model/activation_type.h"

namespace penstock::worker {

int64_t boundary_tensor_bytes(const plan::JobSpec& job) {
  return job.tokens_per_microbatch() * job.model.hidden_size * kernels::size_bytes(activation_type(job));
}

RankModel::RankModel(const plan::JobSpec& job, const RankContext& context)
    : context_(context), threads_(job.device.threads), operators_(kernels::make_cpu_operators(threads_)) {}

StatusOr<std::unique_ptr<RankModel>> RankModel::create(const plan::JobSpec& job,
                                                       const plan::RankProgram& program,
                                                       const RankContext& context,
                                                       const StartingPoint& start) {
  std::unique_ptr<RankModel> model(new RankModel(job, context));
  PENSTOCK_RETURN_IF_ERROR(model->open_data(job, program));  // cheap, and the likeliest to fail: first
  PENSTOCK_RETURN_IF_ERROR(model->allocate(job, program, start));
  return model;
}

Status RankModel::open_data(const plan::JobSpec& job, const plan::RankProgram& program) {
  const bool needed = std::any_of(program.buffers.begin(), program.buffers.end(), [&](const auto& buffers) {
    return ModelStage::reads_tokens(job, job.parallel.split[buffers.stage.value]);
  });
  if (!needed) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(tokens_, TokenSource::open(job));
  PENSTOCK_RETURN_IF_ERROR(tokens_->check_supply(job.train.steps));
  PENSTOCK_ASSIGN_OR_RETURN(data_, DataFingerprint::take(job));
  return ok_status();
}

Status RankModel::allocate(const plan::JobSpec& job, const plan::RankProgram& program,
                           const StartingPoint& start) {
  std::vector<plan::Item> items;
  for (const plan::StageBuffers& buffers : program.buffers) {
    const auto& of_stage = job.parallel.split[buffers.stage.value];
    items.insert(items.end(), of_stage.begin(), of_stage.end());
  }
  PENSTOCK_ASSIGN_OR_RETURN(parameters_, ParameterStore::create(job.model, items, activation_type(job),
                                                                plan::experts_at(job, context_.place)));
  PENSTOCK_RETURN_IF_ERROR(make_optimizer(job));
  PENSTOCK_RETURN_IF_ERROR(fill(job, start));
  parameters_->pack(*operators_);
  const plan::WeightVersionsHeld held = plan::weight_versions_held(program);
  PENSTOCK_ASSIGN_OR_RETURN(
      versions_, WeightVersions::create(
                     {.by_all = held.by_all, .by_forwards = held.by_forwards, .updates = program.updates},
                     *parameters_, *operators_));
  PENSTOCK_ASSIGN_OR_RETURN(workspace_, Workspace::create(job));
  PENSTOCK_RETURN_IF_ERROR(allocate_recomputation_scratch(job, program));
  for (const plan::StageBuffers& buffers : program.buffers) {
    PENSTOCK_ASSIGN_OR_RETURN(StageMemory stage, make_stage(job, program, buffers));
    stage_list_.push_back(stage.stage.get());
    pool_list_.push_back(stage.pool.get());
    stages_.push_back(std::move(stage));
  }
  return warm_up();
}

Status RankModel::make_optimizer(const plan::JobSpec& job) {
  std::vector<plan::ParameterSpec> held;
  for (const Parameter& parameter : parameters_->parameters()) held.push_back(parameter.spec);
  state_shares_ = plan::state_shares(job, context_.place, held);
  std::vector<bool> has_moments;
  for (const plan::StateShare& share : state_shares_) has_moments.push_back(share.has_moments);
  PENSTOCK_ASSIGN_OR_RETURN(optimizer_, AdamW::create(job.train, *parameters_, *operators_, has_moments));
  return ok_status();
}

Status RankModel::allocate_recomputation_scratch(const plan::JobSpec& job, const plan::RankProgram& program) {
  int64_t bytes = 0;
  for (const plan::StageBuffers& buffers : program.buffers) {
    const auto& items = job.parallel.split[buffers.stage.value];
    bytes = std::max(bytes, ModelStage::recomputation_bytes(job, items, buffers.backward).scratch);
  }
  PENSTOCK_ASSIGN_OR_RETURN(recomputation_scratch_,
                            kernels::Slab::allocate(bytes, "the block that is recomputed"));
  return ok_status();
}

Status RankModel::fill(const plan::JobSpec& job, const StartingPoint& start) {
  if (!start.checkpoint.empty())
    return load_checkpoint(start.checkpoint, start.step, job.model, training_state(), *parameters_);
  if (!job.model.from.empty()) return load_weights(job.model.from, job.model, *parameters_);
  parameters_->initialise(job.model, job.train.seed, threads_);
  return ok_status();
}

TrainingState RankModel::training_state() const {
  std::vector<MomentsOfParameter> moments;
  for (const AdamW::Moments& one : optimizer_->moments()) moments.push_back({one.first, one.second});
  return training_state_of(*parameters_, moments);
}

Status RankModel::warm_up() {
  for (const StageMemory& memory : stages_) {
    if (memory.pool->capacity() == 0) continue;  // a second replica that has no microbatch of the step
    PENSTOCK_RETURN_IF_ERROR(memory.stage->warm_up());
  }
  optimizer_->local_squared_norms();
  parameters_->zero_gradients(*operators_);
  return ok_status();
}

StatusOr<RankModel::StageMemory> RankModel::make_stage(const plan::JobSpec& job,
                                                       const plan::RankProgram& program,
                                                       const plan::StageBuffers& buffers) {
  const std::vector<plan::Item>& items = job.parallel.split[buffers.stage.value];
  const int64_t slot_bytes = ModelStage::slot_bytes(job, items, buffers.backward);
  StageMemory memory;
  PENSTOCK_ASSIGN_OR_RETURN(
      memory.slab, kernels::Slab::allocate(buffers.activation_slots * slot_bytes,
                                           fmt::format("{} activation slots of stage {}",
                                                       buffers.activation_slots, buffers.stage.value)));
  const RecomputationBytes recomputed = ModelStage::recomputation_bytes(job, items, buffers.backward);
  const int slots = plan::recomputation_slots(program, buffers.stage);
  PENSTOCK_ASSIGN_OR_RETURN(
      memory.recomputations,
      kernels::Slab::allocate(slots * recomputed.slot,
                              fmt::format("{} recomputation slots of stage {}", slots, buffers.stage.value)));
  memory.route_bytes =
      buffers.activation_slots * ModelStage::route_bytes(job, items) + slots * recomputed.slot_routes;
  memory.pool = std::make_unique<ActivationPool>(buffers.stage, buffers.activation_slots, slot_bytes,
                                                 memory.slab.view());
  const StagePayloadsShape payloads{.stage = buffers.stage,
                                    .activation_slots = buffers.activation_slots,
                                    .slots = plan::payload_high_water(program, buffers.stage)};
  PENSTOCK_ASSIGN_OR_RETURN(memory.payloads, StagePayloads::create(job, items, payloads, clock_));
  StageEnvironment around = environment(job, tokens_ ? &*tokens_ : nullptr);
  around.payloads = memory.payloads.get();
  memory.stage = std::make_unique<ModelStage>(buffers.stage, items, around,
                                              StageSlots{memory.slab.view(), memory.recomputations.view()},
                                              buffers.backward);
  return memory;
}

StageEnvironment RankModel::environment(const plan::JobSpec& job, TokenSource* tokens) {
  return {.job = job,
          .operators = *operators_,
          .parameters = *parameters_,
          .workspace = *workspace_,
          .tokens = tokens,
          .versions = &*versions_,
          .place = context_.place,
          .recomputation_scratch = recomputation_scratch_.view(),
          .expert_group = context_.expert_group,
          .waits = &waits_,
          .clock = &clock_};
}

StatusOr<kernels::SlabView> RankModel::activations(StageIndex stage) const {
  for (const StageMemory& memory : stages_) {
    if (memory.stage->index() == stage) return memory.slab.view();
  }
  return not_found("stage {} is not of this rank", stage.value);
}

const StagePayloads* RankModel::payloads(StageIndex stage) const {
  for (const StageMemory& memory : stages_) {
    if (memory.stage->index() == stage) return memory.payloads.get();
  }
  return nullptr;
}

std::vector<PayloadPool*> RankModel::payload_pools() const {
  std::vector<PayloadPool*> pools;
  for (const StageMemory& memory : stages_) {
    for (const auto& pool : memory.payloads->pools()) pools.push_back(pool.get());
  }
  return pools;
}

int64_t RankModel::payload_bytes() const {
  int64_t bytes = 0;
  for (const StageMemory& memory : stages_) bytes += memory.payloads->bytes();
  return bytes;
}

int64_t RankModel::activation_bytes() const {
  int64_t bytes = 0;
  for (const StageMemory& memory : stages_) bytes += memory.slab.bytes() + memory.recomputations.bytes();
  return bytes - route_bytes();
}

int64_t RankModel::route_bytes() const {
  int64_t bytes = 0;
  for (const StageMemory& memory : stages_) bytes += memory.route_bytes;
  return bytes;
}

}  // namespace penstock::worker
