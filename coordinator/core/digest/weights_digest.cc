#include "coordinator/core/digest/weights_digest.h"

#include <vector>

#include "plan/spec/parameters.h"
#include "plan/spec/weights_digest.h"

namespace penstock::coordinator {

StatusOr<std::string> combine_digests(const plan::ModelSpec& model,
                                      std::span<const ParameterDigest> digests) {
  const std::vector<plan::ParameterSpec> parameters = plan::model_parameters(model);
  std::vector<const ParameterDigest*> by_index(parameters.size(), nullptr);
  for (const ParameterDigest& digest : digests) {
    if (digest.parameter < 0 || digest.parameter >= static_cast<int32_t>(parameters.size())) {
      return invalid_argument("weights digest: parameter: expected 0 to {}, found {}", parameters.size() - 1,
                              digest.parameter);
    }
    const ParameterDigest*& place = by_index[static_cast<size_t>(digest.parameter)];
    if (place) {
      return invalid_argument("weights digest: {}: expected from one rank, found from two",
                              parameters[static_cast<size_t>(digest.parameter)].name);
    }
    place = &digest;
  }
  std::vector<plan::TensorDigest> in_model_order;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!by_index[i]) return invalid_argument("weights digest: {}: no rank sent it", parameters[i].name);
    in_model_order.push_back(by_index[i]->digest);
  }
  return plan::weights_digest(model, in_model_order);
}

}  // namespace penstock::coordinator
