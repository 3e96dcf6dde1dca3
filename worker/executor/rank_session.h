// One rank of one attempt, from its assignment to its end.
//
//     prepare   check the assignment, make the engine, connect, compare with the peers; then RankReady
//     train     steps first_step .. steps - 1, a StepReport each, with the validation loss where a pass followed; where
//               steps are post-validated the report leaves when the step has been validated, in the next one. A StepTrace
//               of those that are traced
//     finish    drain with the peers, write what the job leaves behind, then RankFinished with the digests of its
//               parameters
//
// What is computed, and what happens between the steps, is the engine's business (rank_engine.h).
// Errors carry the instruction where there is one; step() tells the step. Thread: one; abort from any.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/codec.h"
#include "worker/executor/group_endpoints.h"
#include "worker/executor/interpreter.h"
#include "worker/executor/link_buffers.h"
#include "worker/executor/rank_engine.h"
#include "worker/telemetry/step_recorder.h"
#include "worker/telemetry/trace_recorder.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

// Where a rank lives. Everything outlives the session.
struct RankEnvironment {
  GroupEndpoints::Rendezvouses rendezvous;
  std::function<Status(const codec::ExecutorFrame&)> report;  // to the daemon
  GroupEndpoints::MakeEndpoint make_endpoint;
  const Clock& clock;
};

class RankSession final : public StepActions {
 public:
  RankSession(ExecutorAssignment assignment, RankEnvironment environment);

  // All of the above. Call once.
  Status run();

  // The step that it is in; -1 before the first.
  int64_t step() const { return interpreter_ ? interpreter_->step().value : -1; }

  // Tells the peers why this rank ends.
  void abort(const std::string& reason);

 private:
  Status prepare();
  Status connect();
  void account_memory();
  void describe_payloads();
  Status check_memory_budget() const;
  Status train();
  Status run_program(StepIndex first);
  Status finish();

  Status begin_step(StepIndex) override { return ok_status(); }
  Status reduce_gradients(StepIndex step, StageIndex stage) override;
  Status optimizer_step(StepIndex step) override;
  StatusOr<bool> validate_step(StepIndex step) override;
  Status report_step(StepIndex step);
  void report_slots();

  ExecutorAssignment executor_assignment_;
  const Assignment& assignment_;
  RankEnvironment environment_;
  plan::JobSpec job_;
  std::unique_ptr<RankEngine> engine_;
  std::vector<PayloadPool*> payload_pools_;  // of the engine
  std::string fingerprint_;                  // of the engine
  std::unique_ptr<LinkBuffers> links_;
  std::unique_ptr<StepRecorder> recorder_;
  std::unique_ptr<GroupEndpoints> groups_;  // end before the memory above, into which they may still write
  std::unique_ptr<Interpreter> interpreter_;
  codec::ExecutorFrame report_frame_ = StepReport{};  // as it is sent, so that a step copies nothing
  StepReport& report_ = std::get<StepReport>(report_frame_);
  codec::ExecutorFrame trace_frame_ = StepTrace{};
  StepTrace& trace_ = std::get<StepTrace>(trace_frame_);
  std::unique_ptr<TraceRecorder> trace_recorder_;
};

}  // namespace penstock::worker
