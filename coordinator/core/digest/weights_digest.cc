#include "coordinator/core/digest/weights_digest.h"

#include "plan/spec/parameters.h"
#include "plan/spec/weights_digest.h"

namespace penstock::coordinator {
namespace {

struct Sent {
  const ParameterDigest* first = nullptr;
  size_t first_rank = 0;
  int ranks = 0;
};

// "one rank", "3 ranks".
std::string ranks_text(int count) {
  return count == 1 ? "one rank" : fmt::format("{} ranks", count);
}

Status differ(const std::string& name, size_t one, size_t other) {
  return invalid_argument(
      "weights digest: {}: ranks {} and {} ended with different bits of it: expected one sum of gradients and one "
      "optimizer step on all ranks that hold it",
      name, one, other);
}

}  // namespace

StatusOr<std::string> combine_digests(const plan::ModelSpec& model,
                                      std::span<const std::vector<ParameterDigest>> digests,
                                      const ReplicaCounts& replicas) {
  const std::vector<plan::ParameterSpec> parameters = plan::model_parameters(model);
  std::vector<Sent> by_index(parameters.size());
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    for (const ParameterDigest& digest : digests[rank]) {
      if (digest.parameter < 0 || digest.parameter >= static_cast<int32_t>(parameters.size())) {
        return invalid_argument("weights digest: parameter of rank {}: expected 0 to {}, found {}", rank,
                                parameters.size() - 1, digest.parameter);
      }
      Sent& sent = by_index[static_cast<size_t>(digest.parameter)];
      if (sent.first && sent.first->digest != digest.digest)
        return differ(parameters[static_cast<size_t>(digest.parameter)].name, sent.first_rank, rank);
      if (!sent.first) sent = {&digest, rank, 0};
      ++sent.ranks;
    }
  }
  std::vector<plan::TensorDigest> in_model_order;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int expected = parameters[i].is_dense() ? replicas.of_dense : replicas.of_experts;
    const Sent& sent = by_index[i];
    if (!sent.first) return invalid_argument("weights digest: {}: no rank sent it", parameters[i].name);
    if (sent.ranks != expected) {
      return invalid_argument("weights digest: {}: expected from {}, found from {}", parameters[i].name,
                              ranks_text(expected), ranks_text(sent.ranks));
    }
    in_model_order.push_back(sent.first->digest);
  }
  return plan::weights_digest(model, in_model_order);
}

}  // namespace penstock::coordinator
