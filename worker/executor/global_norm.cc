#include "worker/executor/global_norm.h"

#include <numeric>
#include <utility>

namespace penstock::worker {

StatusOr<std::unique_ptr<GlobalNorm>> GlobalNorm::create(const JoinedGroup& group,
                                                         std::span<const int32_t> mine, const Whole& whole) {
  SharedNorms::Whole model{.name = "the model",
                           .parameters = std::vector<int32_t>(static_cast<size_t>(whole.parameters)),
                           .replicas = whole.replicas};
  std::iota(model.parameters.begin(), model.parameters.end(), 0);
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<SharedNorms> norms, SharedNorms::create(group, mine, model));
  return std::unique_ptr<GlobalNorm>(new GlobalNorm(std::move(norms), whole.parameters));
}

StatusOr<double> GlobalNorm::compute(std::span<const SquaredNorm> mine) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::span<const SquaredNorm> all, norms_->gather(mine));
  return norm_.of(all);
}

}  // namespace penstock::worker
