#include "worker/executor/interpreter.h"

#include <utility>

#include "base/check.h"
#include "worker/executor/resolved_program.h"
#include "worker/model/layer_timer.h"

namespace penstock::worker {

using plan::InstructionKind;

StatusOr<std::unique_ptr<Interpreter>> Interpreter::create(InterpreterParts parts) {
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedProgram resolved,
                            resolve(parts.program, parts.stages, parts.pools, parts.links, parts.pairs));
  return std::unique_ptr<Interpreter>(new Interpreter(std::move(parts), std::move(resolved)));
}

Interpreter::Interpreter(InterpreterParts parts, ResolvedProgram resolved)
    : parts_(std::move(parts)),
      leases_(resolved.leases),
      transfers_(resolved.transfers),
      program_(std::move(resolved.instructions)),
      unposted_(std::move(resolved.unposted)) {}

Status Interpreter::run(StepIndex first) {
  first_ = first;
  time_layers();
  PENSTOCK_RETURN_IF_ERROR(begin_step(first));
  PENSTOCK_RETURN_IF_ERROR(execute_all(program_));
  if (traces()) add_layer_times();
  return check_nothing_is_held();
}

void Interpreter::time_layers() {
  for (Stage* stage : parts_.stages) stage->time_layers(traces());
}

void Interpreter::add_layer_times() {
  for (const Stage* stage : parts_.stages) {
    for (const LayerTime& time : stage->layer_times()) {
      if (time.forwards == 0) continue;
      parts_.trace->add_layer({.stage = stage->index(),
                               .type = time.type,
                               .forward_ns = time.forward.count() / time.forwards,
                               .backward_ns = time.backward.count() / time.forwards});
    }
  }
}

Status Interpreter::execute_all(std::span<const ResolvedInstruction> instructions) {
  for (const ResolvedInstruction& instruction : instructions) {
    const Status status = execute(instruction);
    if (!status.ok()) [[unlikely]]
      return explain(status, instruction);
  }
  return ok_status();
}

Status Interpreter::begin_step(StepIndex step) {
  step_ = step;
  PENSTOCK_RETURN_IF_ERROR(parts_.actions.begin_step(step));
  for (Stage* stage : parts_.stages) stage->begin_step(step);
  return ok_status();
}

Status Interpreter::execute(const ResolvedInstruction& instruction) {
  const plan::Instruction& source = *instruction.source;
  switch (source.kind) {
    case InstructionKind::AcquireActivation: {
      PENSTOCK_ASSIGN_OR_RETURN(leases_[instruction.lease],
                                instruction.pool->acquire(source.slot, source.work.microbatch));
      return ok_status();
    }
    case InstructionKind::ReleaseActivation:
      leases_[instruction.lease].release();
      return ok_status();
    case InstructionKind::PostReceive:
      return post_receive(instruction);
    case InstructionKind::WaitReceive:
      return wait_receive(instruction);
    case InstructionKind::Compute:
      return compute(instruction);
    case InstructionKind::Send:
      return send(instruction);
    case InstructionKind::WaitSend:
      return wait_send(instruction);
    case InstructionKind::HandOff:
      return instruction.output.slots->check_full(instruction.output.slot);
    case InstructionKind::ReduceGradients:
      return parts_.actions.reduce_gradients(step_, source.work.stage);
    case InstructionKind::OptimizerStep: {
      PENSTOCK_RETURN_IF_ERROR(parts_.actions.optimizer_step(step_));
      const bool last = source.update + 1 == parts_.program.updates;
      return last ? ok_status() : begin_step(StepIndex(step_.value + 1));
    }
    case InstructionKind::ValidateStep:
      return validate(instruction);
  }
  return internal_error("instruction kind {}", static_cast<int>(source.kind));
}

Status Interpreter::validate(const ResolvedInstruction& instruction) {
  PENSTOCK_ASSIGN_OR_RETURN(const bool stands, parts_.actions.validate_step(step_));
  if (stands) return ok_status();
  PENSTOCK_RETURN_IF_ERROR(undo_warm_up({leases_, transfers_, parts_.links, parts_.endpoint}, unposted_));
  for (Stage* stage : parts_.stages) stage->forget_forwards();
  parts_.recorder.forget_actions();
  if (traces()) parts_.trace->forget_works();
  time_layers();
  PENSTOCK_RETURN_IF_ERROR(begin_step(step_));
  return execute_all(std::span(program_).first(static_cast<size_t>(&instruction - program_.data())));
}

Status Interpreter::compute(const ResolvedInstruction& instruction) {
  const plan::Work& work = instruction.source->work;
  const SlotReference& input = instruction.input;
  const SlotReference& output = instruction.output;
  const int microbatches = parts_.program.microbatches;
  StageCall call{.step = StepIndex(first_.value + work.microbatch.value / microbatches),
                 .microbatch = MicrobatchIndex(work.microbatch.value % microbatches),
                 .slot = instruction.activation_slot,
                 .weight_version = instruction.source->weight_version};
  if (input.slots != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(input.slots->check_full(input.slot));
    call.input = boundary_tensor(input);
  }
  if (output.slots != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(output.slots->fill(output.slot, work.microbatch));
    call.output = boundary_tensor(output);
  }
  const Duration cpu = traces() ? thread_cpu_time() : Duration::zero();
  const TimePoint start = parts_.clock.now();
  PENSTOCK_RETURN_IF_ERROR(call_stage(*instruction.stage, work.kind, call));
  const TimePoint end = parts_.clock.now();
  const Duration waited = instruction.stage->take_waited();
  parts_.recorder.add_wait(waited);
  parts_.recorder.add_action(work.stage, work.kind, end - start - waited);
  if (traces()) parts_.trace->add_work(work, start, end, thread_cpu_time() - cpu);
  if (input.slots != nullptr) PENSTOCK_RETURN_IF_ERROR(input.slots->free_read(input.slot));
  if (output.slots != nullptr) PENSTOCK_RETURN_IF_ERROR(output.slots->filled(output.slot));
  return ok_status();
}

Status Interpreter::call_stage(Stage& stage, plan::ActionKind kind, const StageCall& call) {
  switch (kind) {
    case plan::ActionKind::Forward:
      return stage.forward(call);
    case plan::ActionKind::Backward:
      return stage.backward(call);
    case plan::ActionKind::InputGradient:
      return stage.input_gradient(call);
    case plan::ActionKind::WeightGradient:
      return stage.weight_gradient(call);
  }
  return internal_error("action kind {}", static_cast<int>(kind));
}

kernels::TensorView Interpreter::boundary_tensor(const SlotReference& reference) const {
  return {reference.slots->data(reference.slot),
          parts_.boundary_type,
          {parts_.boundary_rows, parts_.boundary_columns}};
}

Status Interpreter::post_receive(const ResolvedInstruction& instruction) {
  const auto [slots, slot] = instruction.output;
  PENSTOCK_RETURN_IF_ERROR(slots->fill(slot, instruction.source->work.microbatch));
  PENSTOCK_ASSIGN_OR_RETURN(
      transfers_[instruction.transfer],
      parts_.endpoint.post_receive(instruction.source->peer, slots->data(slot), parts_.links.tensor_bytes()));
  return ok_status();
}

Status Interpreter::wait_receive(const ResolvedInstruction& instruction) {
  const TimePoint start = parts_.clock.now();
  PENSTOCK_RETURN_IF_ERROR(wait(instruction));
  if (traces()) parts_.trace->add_wait(*instruction.source, start, parts_.clock.now());
  return instruction.output.slots->filled(instruction.output.slot);
}

Status Interpreter::send(const ResolvedInstruction& instruction) {
  const auto [slots, slot] = instruction.output;
  PENSTOCK_RETURN_IF_ERROR(slots->send(slot));
  PENSTOCK_ASSIGN_OR_RETURN(
      transfers_[instruction.transfer],
      parts_.endpoint.post_send(instruction.source->peer, slots->data(slot), parts_.links.tensor_bytes()));
  return ok_status();
}

Status Interpreter::wait_send(const ResolvedInstruction& instruction) {
  PENSTOCK_RETURN_IF_ERROR(wait(instruction));
  return instruction.output.slots->free_sent(instruction.output.slot);
}

Status Interpreter::wait(const ResolvedInstruction& instruction) {
  const TimePoint start = parts_.clock.now();
  const Status status = parts_.endpoint.wait(std::exchange(transfers_[instruction.transfer], TransferId{}));
  parts_.recorder.add_wait(parts_.clock.now() - start);
  return status;
}

// What is held beyond a program's end is held for ever, and the memory of a step grows by it.
Status Interpreter::check_nothing_is_held() const {
  for (const ActivationPool* pool : parts_.pools) {
    if (pool->held() > 0) {
      return internal_error("step {}: stage {} still holds {} activation slots after the program's end",
                            step_.value, pool->stage().value, pool->held());
    }
  }
  if (!parts_.links.all_free()) {
    return internal_error("step {}: boundary slots are in use after the program's end", step_.value);
  }
  return ok_status();
}

Status Interpreter::explain(const Status& status, const ResolvedInstruction& instruction) const {
  return with_context(
      status, fmt::format("{} (instruction {} of {})", plan::to_string(*instruction.source),
                          instruction.source - parts_.program.instructions.data() + 1, program_.size()));
}

}  // namespace penstock::worker
