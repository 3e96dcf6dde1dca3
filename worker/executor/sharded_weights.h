// ZeRO-1: the weights of a rank whose moments are shared out among the ranks that hold them (plan/spec/state_share.h). The
// rank that has a parameter's moments has updated it; here it gives the new weight to the others, which pack it.
//
// Errors: those of the endpoints. Thread: the interpreter's, at the same place among the messages of all ranks.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "kernels/ops/operators.h"
#include "plan/spec/state_share.h"
#include "worker/collectives/owned_tensors.h"
#include "worker/executor/group_endpoints.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

class ShardedWeights {
 public:
  // `shares`: beside the parameters. `groups` are open. All outlive it but `shares`.
  ShardedWeights(const ParameterStore& parameters, const std::vector<plan::StateShare>& shares,
                 kernels::Operators& operators, const GroupEndpoints& groups);

  // Behind the optimizer step. Every rank of the groups then has the same bits, packed copies too.
  Status share();

 private:
  const ParameterStore& parameters_;
  std::vector<size_t> received_;  // parameters that come from another rank
  kernels::Operators& operators_;
  std::optional<OwnedTensors> dense_, experts_;  // where the group has another rank
};

}  // namespace penstock::worker
