// Runs a rank's lowered program, and knows nothing else: no schedule by name, no model, no transport by kind.
//
// Everything that an instruction touches is found at construction: stages, leases, slots, transfer ids. A
// step allocates nothing here. Where ValidateStep finds that the step before was taken anew, the program begins again
// from its start, once (warm_up_undo.h).
//
// Errors: whatever failed, with the instruction (stage, action, microbatch, peer) and its place in front; step()
// tells the step. Afterwards the interpreter cannot be used again. Thread: one, the rank's own; it sleeps while it
// waits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "kernels/tensor/tensor.h"
#include "plan/schedule/lowered.h"
#include "worker/buffers/activation_pool.h"
#include "worker/executor/link_buffers.h"
#include "worker/executor/resolved_program.h"
#include "worker/model/stage.h"
#include "worker/telemetry/step_recorder.h"
#include "worker/telemetry/trace_recorder.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

// What happens between the computations, which is the rank's business and not the program's.
class StepActions {
 public:
  virtual ~StepActions() = default;
  // Before the first instruction of a step.
  virtual Status begin_step(StepIndex step) = 0;
  // Sums the gradients of `stage` over replicas; all of the step's backwards of the stage have ended.
  virtual Status reduce_gradients(StepIndex step, StageIndex stage) = 0;
  // Updates the rank's parameters; ends the step.
  virtual Status optimizer_step(StepIndex step) = 0;
  // Inside `step`: whether the step before stands as it was taken. False: it has been taken anew, and what was
  // computed with its weights counts for nothing. Only of programs whose steps are post-validated.
  virtual StatusOr<bool> validate_step(StepIndex step) {
    return internal_error("step {}: its program validates the step before, and nobody can", step.value);
  }
};

// Everything outlives the interpreter.
struct InterpreterParts {
  const plan::RankProgram& program;
  std::vector<Stage*> stages;          // of the rank, in the order of program.buffers
  std::vector<ActivationPool*> pools;  // beside them
  LinkBuffers& links;
  Endpoint& endpoint;
  StepActions& actions;
  StepRecorder& recorder;
  const Clock& clock;
  // Of a boundary tensor; its bytes are the links' tensor_bytes.
  kernels::DataType boundary_type = kernels::DataType::Float32;
  int64_t boundary_rows = 0;       // tokens of a microbatch
  int64_t boundary_columns = 0;    // hidden size
  TraceRecorder* trace = nullptr;  // null: nothing is traced
  Pairs pairs = Pairs::InTurn;
};

class Interpreter {
 public:
  // Internal: the program names what its rank does not have; verification would have refused it.
  static StatusOr<std::unique_ptr<Interpreter>> create(InterpreterParts parts);

  // Runs the program once: its `updates` steps from `first` on. The recorder is begun by the caller.
  Status run(StepIndex first);

  // The step that run() is in or ended with; unset before the first.
  StepIndex step() const { return step_; }

 private:
  Interpreter(InterpreterParts parts, ResolvedProgram resolved);
  Status begin_step(StepIndex step);
  Status execute_all(std::span<const ResolvedInstruction> instructions);
  Status validate(const ResolvedInstruction& instruction);
  Status execute(const ResolvedInstruction& instruction);
  Status compute(const ResolvedInstruction& instruction);
  static Status call_stage(Stage& stage, plan::ActionKind kind, const StageCall& call);
  kernels::TensorView boundary_tensor(const SlotReference& reference) const;
  Status post_receive(const ResolvedInstruction& instruction);
  Status wait_receive(const ResolvedInstruction& instruction);
  Status send(const ResolvedInstruction& instruction);
  Status wait_send(const ResolvedInstruction& instruction);
  Status wait(const ResolvedInstruction& instruction);
  void time_layers();
  void add_layer_times();
  bool traces() const { return parts_.trace != nullptr && parts_.trace->recording(); }
  Status check_nothing_is_held() const;
  Status explain(const Status& status, const ResolvedInstruction& instruction) const;

  InterpreterParts parts_;
  StepIndex first_;  // of this run of the program
  StepIndex step_;
  std::vector<ActivationLease> leases_;
  std::vector<TransferId> transfers_;
  std::vector<ResolvedInstruction> program_;
  std::vector<UnpostedMessages> unposted_;
};

}  // namespace penstock::worker
