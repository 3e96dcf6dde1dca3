// Sums the gradients of a rank's stages over all ranks that have run them for some of the step's microbatches, once a
// step. Afterwards these hold the same bits, and so make the same optimizer step.
//
//     pipelines side by side   dense parameters over the data group, experts over that of their replicas, each in the
//                              order of its ranks
//     two replicas a pipeline  of a stage (DualPipe, Chimera) these sums: replica 0 + replica 1
//
// A tied head's accumulator counts as one of its stage. Errors: those of the endpoints. Thread: the interpreter's, at the
// same place among the messages of all ranks.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/ops/operators.h"
#include "kernels/tensor/tensor.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/collectives/ordered_sum.h"
#include "worker/executor/group_endpoints.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

class GradientSums {
 public:
  // `groups` are open. Everything outlives it but `job` and `program`.
  GradientSums(const plan::JobSpec& job, const plan::RankProgram& program, const ParameterStore& parameters,
               kernels::Operators& operators, const GroupEndpoints& groups);

  // Nothing happens for a stage that no other rank holds.
  Status sum(StageIndex stage);

  // Memory account: what messages pass through.
  int64_t bytes() const;

 private:
  using Tensors = std::vector<kernels::TensorView>;
  struct OfStage {
    Tensors dense, experts;           // by the group that they are summed over
    Tensors all;                      // of a stage with two replicas
    std::vector<RankIndex> replicas;  // in the pipeline, in their order
  };

  std::map<StageIndex, OfStage> stages_;
  // Where the group has another rank. Of the pipeline: where a stage has two replicas.
  std::optional<OrderedSum> over_data_, over_expert_data_, over_pipeline_;
};

}  // namespace penstock::worker
