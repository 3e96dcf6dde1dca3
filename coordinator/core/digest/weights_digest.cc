#include "coordinator/core/digest/weights_digest.h"

#include <vector>

#include "plan/spec/parameters.h"
#include "plan/spec/weights_digest.h"

namespace penstock::coordinator {

StatusOr<std::string> combine_digests(const plan::ModelSpec& model, std::span<const ParameterDigest> digests,
                                      int replicas) {
  const std::vector<plan::ParameterSpec> parameters = plan::model_parameters(model);
  struct Sent {
    const ParameterDigest* first = nullptr;
    int ranks = 0;
  };
  std::vector<Sent> by_index(parameters.size());
  for (const ParameterDigest& digest : digests) {
    if (digest.parameter < 0 || digest.parameter >= static_cast<int32_t>(parameters.size())) {
      return invalid_argument("weights digest: parameter: expected 0 to {}, found {}", parameters.size() - 1,
                              digest.parameter);
    }
    Sent& sent = by_index[static_cast<size_t>(digest.parameter)];
    const std::string& name = parameters[static_cast<size_t>(digest.parameter)].name;
    if (sent.first && sent.first->digest != digest.digest) {
      return invalid_argument(
          "weights digest: {}: its two replicas ended with different bits: expected one sum of gradients and one "
          "optimizer step on both ranks",
          name);
    }
    if (++sent.ranks > replicas) {
      return invalid_argument("weights digest: {}: expected from {}, found from {}", name,
                              replicas == 1 ? "one rank" : "two ranks", replicas == 1 ? "two" : "three");
    }
    sent.first = &digest;
  }
  std::vector<plan::TensorDigest> in_model_order;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [digest, ranks] = by_index[i];
    if (!digest) return invalid_argument("weights digest: {}: no rank sent it", parameters[i].name);
    if (ranks < replicas) {
      return invalid_argument("weights digest: {}: expected from two ranks, found from one",
                              parameters[i].name);
    }
    in_model_order.push_back(digest->digest);
  }
  return plan::weights_digest(model, in_model_order);
}

}  // namespace penstock::coordinator
