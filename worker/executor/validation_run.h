// The forward-only passes over held-out data, on the ranks, stages and activation slots of the training.
//
// A pass computes with the weights as they are and leaves nothing behind: no gradient, no state, no draw of a random
// number (dropout is off). It runs between two steps, when every slot is free, so that the training's bits do not
// depend on it. Each pass takes the same samples.
//
// Errors: those of the data, the interpreter and the endpoint. Thread: the interpreter's.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/executor/interpreter.h"
#include "worker/executor/link_buffers.h"
#include "worker/executor/rank_model.h"

namespace penstock::worker {

// Whether a pass follows `step`: after every validation.every steps, and after the last.
bool validates_after(const plan::JobSpec& job, StepIndex step);

// What a pass computes: the model without dropout, one "step" of job.validation_microbatches().
plan::JobSpec validation_job(const plan::JobSpec& job);

class ValidationRun final : private StepActions {
 public:
  // Opens the held-out data and takes the boundary slots. `program` is forward-only and outlives it, as does `model`.
  static StatusOr<std::unique_ptr<ValidationRun>> create(const plan::JobSpec& job,
                                                         const plan::RankProgram& program, RankModel& model);
  // Once, before the first pass. Both outlive it.
  Status connect(Endpoint& endpoint, const Clock& clock);

  // One pass; every rank takes part. The mean loss over the targets, on the rank with the loss stage.
  StatusOr<std::optional<double>> run();

  // Memory account: boundary slots.
  int64_t boundary_bytes() const { return links_->bytes(); }

 private:
  ValidationRun(const plan::JobSpec& job, const plan::RankProgram& program, RankModel& model);
  Status make_stages();

  Status begin_step(StepIndex) override { return ok_status(); }
  Status reduce_gradients(StepIndex step, StageIndex stage) override;
  Status optimizer_step(StepIndex step) override;

  plan::JobSpec job_;  // of a pass
  const plan::RankProgram& program_;
  RankModel& model_;
  std::optional<TokenSource> tokens_;
  std::vector<std::unique_ptr<ActivationPool>> pools_;  // over the slots of the training
  std::vector<std::unique_ptr<ModelStage>> stages_;
  std::unique_ptr<LinkBuffers> links_;
  std::unique_ptr<StepRecorder> recorder_;  // apart: a pass is no part of a step's times
  std::unique_ptr<Interpreter> interpreter_;
};

}  // namespace penstock::worker
