// What a rank computes with, as its session sees it: stages and their activation slots, what happens to gradients and
// weights between the steps, and what is said of it all. The session has the program, the links and the reports.
//
// Order of calls: connect() once, then for every step the interpreter's computations, reduce_gradients(), one
// optimizer_step(), describe_step() and after_step(), and validate_step() in the next one where is_provisional(); at the
// end, when no message is under way, finish().
// Errors say what failed; the session adds rank and step. Thread: the interpreter's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "kernels/tensor/tensor.h"
#include "proto/codec/codec.h"
#include "proto/codec/messages.h"
#include "worker/buffers/activation_pool.h"
#include "worker/buffers/payload_pool.h"
#include "worker/executor/resolved_program.h"
#include "worker/model/stage.h"
#include "worker/telemetry/step_recorder.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

// Of a tensor that passes between two stages.
struct BoundaryShape {
  kernels::DataType type = kernels::DataType::Float32;
  int64_t rows = 0;     // tokens of a microbatch
  int64_t columns = 0;  // hidden size

  int64_t bytes() const { return rows * columns * kernels::size_bytes(type); }
};

// What a connected engine works with. All of it outlives the engine's use.
struct EngineConnection {
  Endpoint& endpoint;  // open, between the ranks of the program: those of one pipeline
  const Clock& clock;
  StepRecorder& recorder;  // takes the times of what the engine does between the steps
  std::function<Status(const codec::ExecutorFrame&)> report;  // to the daemon; from any thread
};

struct StepVerdict {
  double gradient_norm = 0;
  bool stands =
      true;  // else it has been taken anew, and what was computed with its weights counts for nothing
};

class RankEngine {
 public:
  virtual ~RankEngine() = default;

  // In the order of the program's buffers.
  virtual const std::vector<Stage*>& stages() const = 0;
  virtual const std::vector<ActivationPool*>& pools() const = 0;
  // Of all its stages.
  virtual std::vector<PayloadPool*> payload_pools() const { return {}; }
  virtual BoundaryShape boundary() const = 0;
  virtual Pairs pairs() const { return Pairs::InTurn; }

  // Memory account: what the rank holds from now to the end, by kind. `link_bytes`: of the links' boundary tensors,
  // which the session has allocated.
  virtual std::vector<MemoryKind> memory(int64_t link_bytes) const = 0;
  // Of the arithmetic; ranks whose fingerprints differ do not train together.
  virtual std::string fingerprint() const = 0;
  // CPU time used by its computations so far.
  virtual Duration cpu_time() = 0;

  // Collective: meets the engines of the other ranks, and compares what must be the same there.
  virtual Status connect(const EngineConnection& connection) = 0;
  // That the program's messages pass, once connected: the connection's, or one that the engine puts in front of it.
  virtual Endpoint& program_endpoint() = 0;

  // Sums the gradients of `stage` over all ranks that hold it.
  virtual Status reduce_gradients(StepIndex step, StageIndex stage) = 0;
  // Updates the rank's parameters.
  virtual Status optimizer_step(StepIndex step) = 0;
  // Whether the last step may still have to be taken anew, its norm not being known: validate_step() then follows in
  // the next step. Never where after_step() has something to do, nor after the job's last step.
  virtual bool is_provisional() const { return false; }
  // Ends that. Where the step does not stand, the weights are those of the step that was taken instead.
  virtual StatusOr<StepVerdict> validate_step() { return internal_error("no step waits to be validated"); }
  // Writes what the step gave into `report`: the loss on the rank that has it, the gradient norm.
  virtual void describe_step(StepReport& report) const = 0;
  // What stands between two steps, every slot being free: validation, the snapshot of a checkpoint. The report is that of `step`.
  virtual Status after_step(StepIndex step, StepReport& report) = 0;

  // Writes what the job leaves behind; the digests of the rank's parameters.
  virtual StatusOr<std::vector<ParameterDigest>> finish() = 0;
};

}  // namespace penstock::worker
