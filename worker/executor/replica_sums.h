// Sums the gradients of stages that two ranks hold (DualPipe, Chimera) over the two, once a step: each rank has run the
// stage for some of the step's microbatches. Afterwards both hold the sum, replica 0 + replica 1, with the same bits; both
// make the same optimizer step, so that the replicas stay one.
//
// Thread: the interpreter's; both ranks call sum_gradients for a stage at the same place among their messages. Errors:
// those of the endpoint.
#pragma once

#include <map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/ops/operators.h"
#include "kernels/tensor/tensor.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "worker/executor/chunked_exchange.h"
#include "worker/model/parameters.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

class ReplicaSums {
 public:
  // `program` says which stages of the rank have a twin. Everything outlives it but `job` and `program`.
  ReplicaSums(const plan::JobSpec& job, const plan::RankProgram& program, const ParameterStore& parameters,
              kernels::Operators& operators, Endpoint& endpoint);

  // Nothing happens for a stage that has one replica.
  Status sum_gradients(StageIndex stage);

 private:
  struct Replicated {
    RankIndex twin;
    std::vector<kernels::TensorView> gradients;  // all accumulators of the stage, cut alike on both ranks
  };
  std::map<StageIndex, Replicated> stages_;
  ChunkedExchange exchange_;
};

}  // namespace penstock::worker
