#include "worker/executor/validation_run.h"

#include <algorithm>
#include <utility>

#include "worker/model/activation_type.h"

namespace penstock::worker {

bool validates_after(const plan::JobSpec& job, StepIndex step) {
  if (job.validation.every == 0) return false;
  const int64_t done = step.value + 1;
  return done % job.validation.every == 0 || done == job.train.steps;
}

plan::JobSpec validation_job(const plan::JobSpec& job) {
  plan::JobSpec pass = job;
  pass.data = job.validation.data;
  pass.model.hidden_dropout = 0;
  pass.train.global_batch_size = job.validation.microbatches * job.train.microbatch_size;
  return pass;
}

StatusOr<std::unique_ptr<ValidationRun>> ValidationRun::create(const plan::JobSpec& job,
                                                               const plan::RankProgram& program,
                                                               RankModel& model) {
  std::unique_ptr<ValidationRun> validation(new ValidationRun(job, program, model));
  const plan::JobSpec& pass = validation->job_;
  if (model.data() != nullptr) {  // the ranks that read training data read held-out data
    PENSTOCK_ASSIGN_OR_RETURN(validation->tokens_, TokenSource::open_validation(job));
  }
  PENSTOCK_RETURN_IF_ERROR(validation->make_stages());
  PENSTOCK_ASSIGN_OR_RETURN(LinkBuffers links, LinkBuffers::create(program, boundary_tensor_bytes(pass)));
  validation->links_ = std::make_unique<LinkBuffers>(std::move(links));
  return validation;
}

ValidationRun::ValidationRun(const plan::JobSpec& job, const plan::RankProgram& program, RankModel& model)
    : job_(validation_job(job)), program_(program), model_(model) {}

Status ValidationRun::make_stages() {
  std::vector<StageIndex> indices;
  for (const plan::StageBuffers& buffers : program_.buffers) {
    PENSTOCK_ASSIGN_OR_RETURN(const kernels::SlabView slots, model_.activations(buffers.stage));
    const std::vector<plan::Item>& items = job_.parallel.split[static_cast<size_t>(buffers.stage.value)];
    const int64_t slot_bytes = ModelStage::slot_bytes(job_, items, buffers.backward);
    if (buffers.activation_slots * slot_bytes > slots.bytes) {
      return internal_error(
          "validation of stage {} takes {} activation slots of {} bytes; training has {} bytes",
          buffers.stage.value, buffers.activation_slots, slot_bytes, slots.bytes);
    }
    const kernels::SlabView used{slots.data, buffers.activation_slots * slot_bytes};
    pools_.push_back(
        std::make_unique<ActivationPool>(buffers.stage, buffers.activation_slots, slot_bytes, used));
    StageEnvironment environment = model_.environment(job_, tokens_ ? &*tokens_ : nullptr);
    environment.evaluation = true;
    environment.payloads = model_.payloads(buffers.stage);
    stages_.push_back(std::make_unique<ModelStage>(buffers.stage, items, environment, StageSlots{used}));
    indices.push_back(buffers.stage);
  }
  recorder_ = std::make_unique<StepRecorder>(indices, program_.microbatches);
  return ok_status();
}

Status ValidationRun::connect(Endpoint& endpoint, const Clock& clock) {
  std::vector<Stage*> stages;
  std::vector<ActivationPool*> pools;
  for (const auto& stage : stages_) stages.push_back(stage.get());
  for (const auto& pool : pools_) pools.push_back(pool.get());
  PENSTOCK_ASSIGN_OR_RETURN(interpreter_, Interpreter::create({.program = program_,
                                                               .stages = std::move(stages),
                                                               .pools = std::move(pools),
                                                               .links = *links_,
                                                               .endpoint = endpoint,
                                                               .actions = *this,
                                                               .recorder = *recorder_,
                                                               .clock = clock,
                                                               .boundary_type = activation_type(job_),
                                                               .boundary_rows = job_.tokens_per_microbatch(),
                                                               .boundary_columns = job_.model.hidden_size}));
  return ok_status();
}

StatusOr<std::optional<double>> ValidationRun::run() {
  recorder_->begin({}, {});
  PENSTOCK_RETURN_IF_ERROR(with_context(interpreter_->run(StepIndex(0)), "validation"));
  std::optional<double> loss;
  for (const auto& stage : stages_) {
    if (stage->has_loss()) loss = stage->mean_loss();
  }
  return loss;
}

Status ValidationRun::reduce_gradients(StepIndex, StageIndex stage) {
  return internal_error("a forward-only program reduces gradients of stage {}", stage.value);
}

Status ValidationRun::optimizer_step(StepIndex) {
  return internal_error("a forward-only program has an optimizer step");
}

}  // namespace penstock::worker
