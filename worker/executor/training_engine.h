// The engine that trains: a rank's part of the model on this host's memory and cores, with its optimizer, what it
// exchanges with the other ranks between the steps, held-out validation, checkpoints and the final weights.
//
// Thread: the interpreter's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/executor/global_norm.h"
#include "worker/executor/gradient_sums.h"
#include "worker/executor/group_endpoints.h"
#include "worker/executor/post_validated_step.h"
#include "worker/executor/rank_engine.h"
#include "worker/executor/rank_model.h"
#include "worker/executor/sharded_weights.h"
#include "worker/executor/shared_norms.h"
#include "worker/executor/tied_weights.h"
#include "worker/executor/validation_run.h"

namespace penstock::worker {

class TrainingEngine final : public RankEngine {
 public:
  // Allocates everything that grows with the model. `job` (with its threads resolved), `assignment` and `groups` outlive
  // its use. Errors: of data, weights and their places, with the host that was looked at; ResourceExhausted.
  static StatusOr<std::unique_ptr<RankEngine>> create(const plan::JobSpec& job, const Assignment& assignment,
                                                      const GroupEndpoints& groups);

  const std::vector<Stage*>& stages() const override { return model_->stages(); }
  const std::vector<ActivationPool*>& pools() const override { return model_->pools(); }
  std::vector<PayloadPool*> payload_pools() const override { return model_->payload_pools(); }
  BoundaryShape boundary() const override;
  // Not counted: the operators' own scratch and tables, which the warm-up makes.
  std::vector<MemoryKind> memory(int64_t link_bytes) const override;
  std::string fingerprint() const override;
  Duration cpu_time() override { return model_->cpu_time(); }

  Status connect(const EngineConnection& connection) override;
  Endpoint& program_endpoint() override { return connection_->endpoint; }
  Status reduce_gradients(StepIndex step, StageIndex stage) override;
  Status optimizer_step(StepIndex step) override;
  bool is_provisional() const override { return post_validated_ && post_validated_->is_pending(); }
  StatusOr<StepVerdict> validate_step() override;
  void describe_step(StepReport& report) const override;
  Status after_step(StepIndex step, StepReport& report) override;
  StatusOr<std::vector<ParameterDigest>> finish() override;

 private:
  TrainingEngine(const plan::JobSpec& job, const Assignment& assignment, const GroupEndpoints& groups)
      : job_(job), assignment_(assignment), groups_(groups) {}
  Status allocate();
  Status check_places() const;
  Status make_writer();
  bool is_kept_after(StepIndex step) const;  // whether a checkpoint follows it
  Status write_weights() const;
  Status update_at_once(StepIndex step, Duration& waited);
  Status update_provisionally(StepIndex step, Duration& waited);
  void note_norm(double norm);  // of the last step
  Status meet_owners();
  Status meet_replicas();
  Status meet_tied_peer();
  std::vector<int32_t> parameters_of_stages() const;
  // Of these, in model order.
  StatusOr<std::span<const SquaredNorm>> squared_norms();
  // What of the rank's parameters is this rank's to write.
  std::vector<Parameter> parameters_to_write(bool plan::StateShare::*what) const;
  Status on_host(const Status& status) const;
  void describe_experts(StepReport& report) const;
  void log_expert_loads(StepIndex step) const;

  const plan::JobSpec& job_;
  const Assignment& assignment_;
  const GroupEndpoints& groups_;
  std::unique_ptr<RankModel> model_;
  std::unique_ptr<GradientSums> sums_;
  std::unique_ptr<SharedNorms> stage_norms_;           // with pipelines side by side
  std::unique_ptr<ShardedWeights> sharded_;            // with moments on one rank each
  std::unique_ptr<GlobalNorm> norm_;                   // with a barrier
  std::unique_ptr<PostValidatedStep> post_validated_;  // without one
  std::unique_ptr<TiedWeights> tied_;                  // with tied embeddings
  std::unique_ptr<ValidationRun> validation_;          // with validation
  std::unique_ptr<CheckpointWriter> writer_;  // with checkpoints; reads model_, and so ends before it
  std::optional<EngineConnection> connection_;
  StepIndex step_;  // the last one that ended
  // Of it, unless it is provisional: the model's, or this rank's where no rank waits for another.
  double gradient_norm_ = 0;
  int64_t skipped_steps_ = 0;
};

}  // namespace penstock::worker
