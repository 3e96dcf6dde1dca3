// Everything of the model that one rank holds: compute threads, operators, parameters, optimizer state,
// activation pools and the stages that use them. Allocated once, before the first step; owns nothing that
// communicates.
//
// Thread: the interpreter's.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kernels/device/compute_threads.h"
#include "kernels/device/slab.h"
#include "kernels/ops/operators.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/rank_place.h"
#include "plan/spec/state_share.h"
#include "worker/buffers/activation_pool.h"
#include "worker/checkpoint/training_state.h"
#include "worker/data/data_digest.h"
#include "worker/data/token_source.h"
#include "worker/model/model_stage.h"
#include "worker/model/parameters.h"
#include "worker/model/weight_versions.h"
#include "worker/model/workspace.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {

// Bytes of one tensor that passes between two stages.
int64_t boundary_tensor_bytes(const plan::JobSpec& job);

// The checkpoint that a rank starts from, and the steps that had been done then; "": from the model's first weights.
struct StartingPoint {
  std::string checkpoint{};
  int64_t step = 0;
};

// Where the rank stands among those with its stages.
struct RankContext {
  plan::RankPlace place{};
  // Its experts are this rank's share; null: all are here. Connected before the first step.
  const GroupMember* expert_group = nullptr;
};

class RankModel {
 public:
  // `job` outlives it; job.parallel.split names the items of program's stages. Errors: those of the data, of the
  // checkpoint and of the weights that the job starts from, and ResourceExhausted with what the memory was for.
  static StatusOr<std::unique_ptr<RankModel>> create(const plan::JobSpec& job,
                                                     const plan::RankProgram& program,
                                                     const RankContext& context,
                                                     const StartingPoint& start = {});

  const std::vector<Stage*>& stages() const { return stage_list_; }
  const std::vector<ActivationPool*>& pools() const { return pool_list_; }
  const ParameterStore& parameters() const { return *parameters_; }
  // Of the data that it reads; null when it reads none.
  const DataFingerprint* data() const { return data_ ? &*data_ : nullptr; }
  kernels::Operators& operators() { return *operators_; }
  // For stages beside those of the training, over the same weights. `job` and `tokens` outlive them.
  StageEnvironment environment(const plan::JobSpec& job, TokenSource* tokens);
  // All activation slots of one of the rank's stages. NotFound: it is another rank's.
  StatusOr<kernels::SlabView> activations(StageIndex stage) const;
  // All payload pools of one of the rank's stages; null: it is another rank's.
  const StagePayloads* payloads(StageIndex stage) const;
  // Of all its stages.
  std::vector<PayloadPool*> payload_pools() const;
  // Beside its parameters: what of their state is here.
  const std::vector<plan::StateShare>& state_shares() const { return state_shares_; }
  AdamW& optimizer() { return *optimizer_; }
  // What a checkpoint holds of it; lives in it.
  TrainingState training_state() const;
  WeightVersions& versions() { return *versions_; }
  // What the optimizer has not made zero itself.
  void zero_tied_gradient() { parameters_->zero_tied_gradient(*operators_); }

  // CPU time of the calling thread and of the helpers.
  Duration cpu_time() { return thread_cpu_time() + threads_.helper_cpu_time(); }

  // Memory account.
  int64_t parameter_bytes() const { return parameters_->parameter_bytes(); }
  int64_t packed_bytes() const { return parameters_->packed_bytes(); }
  int64_t gradient_bytes() const { return parameters_->gradient_bytes(); }
  int64_t optimizer_bytes() const { return optimizer_->optimizer_bytes(); }
  int64_t activation_bytes() const;
  int64_t route_bytes() const;  // no activations, though in their slots
  int64_t payload_bytes() const;
  // What any action works in, and what recomputed blocks run again in.
  int64_t workspace_bytes() const { return workspace_->bytes() + recomputation_scratch_.bytes(); }
  int64_t weight_version_bytes() const { return versions_->bytes(); }

 private:
  struct StageMemory {
    kernels::Slab slab;
    kernels::Slab recomputations;
    int64_t route_bytes = 0;  // of both slabs
    std::unique_ptr<ActivationPool> pool;
    std::unique_ptr<StagePayloads> payloads;
    std::unique_ptr<ModelStage> stage;
  };

  RankModel(const plan::JobSpec& job, const RankContext& context);
  Status allocate(const plan::JobSpec& job, const plan::RankProgram& program, const StartingPoint& start);
  Status make_optimizer(const plan::JobSpec& job);
  Status fill(const plan::JobSpec& job, const StartingPoint& start);
  // So that every kernel is made, and the fingerprint complete, before the first step.
  Status warm_up();
  Status open_data(const plan::JobSpec& job, const plan::RankProgram& program);
  Status allocate_recomputation_scratch(const plan::JobSpec& job, const plan::RankProgram& program);
  StatusOr<StageMemory> make_stage(const plan::JobSpec& job, const plan::RankProgram& program,
                                   const plan::StageBuffers& buffers);

  const RankContext context_;
  SystemClock clock_;  // of the age of leases, and of waits
  WaitMeter waits_{clock_};
  kernels::ComputeThreads threads_;
  std::unique_ptr<kernels::Operators> operators_;
  std::optional<ParameterStore> parameters_;
  std::vector<plan::StateShare> state_shares_;
  std::optional<WeightVersions> versions_;
  std::optional<Workspace> workspace_;
  kernels::Slab recomputation_scratch_;
  std::optional<TokenSource> tokens_;    // of the ranks that hold the embedding or the head
  std::optional<DataFingerprint> data_;  // beside tokens_
  std::optional<AdamW> optimizer_;
  std::vector<StageMemory> stages_;
  std::vector<Stage*> stage_list_;  // beside stages_, as are the pools
  std::vector<ActivationPool*> pool_list_;
};

}  // namespace penstock::worker
