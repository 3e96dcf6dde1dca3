#include "worker/executor/sharded_weights.h"

namespace penstock::worker {

ShardedWeights::ShardedWeights(const ParameterStore& parameters, const std::vector<plan::StateShare>& shares,
                               kernels::Operators& operators, const GroupEndpoints& groups)
    : parameters_(parameters), operators_(operators) {
  std::vector<OwnedTensor> dense, experts;
  for (size_t i = 0; i < shares.size(); ++i) {
    const Parameter& parameter = parameters.parameters()[i];
    (parameter.spec.is_dense() ? dense : experts).push_back({shares[i].owner, parameter.weight});
    if (!shares[i].has_moments) received_.push_back(i);
  }
  if (groups.data().member.ranks > 1) dense_.emplace(groups.data().member, dense);
  if (groups.expert_data().member.ranks > 1) experts_.emplace(groups.expert_data().member, experts);
}

Status ShardedWeights::share() {
  if (dense_) PENSTOCK_RETURN_IF_ERROR(dense_->share());
  if (experts_) PENSTOCK_RETURN_IF_ERROR(experts_->share());
  for (const size_t i : received_) {
    const Parameter& parameter = parameters_.parameters()[i];
    if (parameter.packed.weight.data != nullptr) operators_.pack(parameter.weight, parameter.packed);
  }
  return ok_status();
}

}  // namespace penstock::worker
