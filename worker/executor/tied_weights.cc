#include "worker/executor/tied_weights.h"

#include <algorithm>

#include "worker/transport/all_gather.h"

namespace penstock::worker {
namespace {

// What a rank says of itself.
constexpr int kHoldsEmbedding = 1;
constexpr int kHoldsHead = 2;

}  // namespace

StatusOr<std::unique_ptr<TiedWeights>> TiedWeights::create(Endpoint& endpoint, RankIndex rank, int ranks,
                                                           const ParameterStore& parameters,
                                                           kernels::Operators& operators) {
  std::unique_ptr<TiedWeights> tied(new TiedWeights(endpoint, parameters, operators));
  PENSTOCK_RETURN_IF_ERROR(tied->meet(endpoint, rank, ranks));
  return tied;
}

Status TiedWeights::meet(Endpoint& endpoint, RankIndex rank, int ranks) {
  AllGather gather(endpoint, rank, std::vector<int>(static_cast<size_t>(ranks), 1));
  gather.mine()[0] = (embedding_ != nullptr ? kHoldsEmbedding : 0) + (head_ != nullptr ? kHoldsHead : 0);
  PENSTOCK_RETURN_IF_ERROR(gather.run());
  std::vector<RankIndex> with_embedding, with_head;
  for (int r = 0; r < ranks; ++r) {
    const double says = gather.part(RankIndex(r))[0];
    if (!(says >= 0 && says <= kHoldsEmbedding + kHoldsHead)) {
      return data_loss("rank {} says {} of the tied matrix, 0 to 3 expected", r, says);
    }
    const int held = static_cast<int>(says);
    if (held & kHoldsEmbedding) with_embedding.emplace_back(r);
    if (held & kHoldsHead) with_head.emplace_back(r);
  }
  if (with_embedding == with_head && !with_head.empty()) return ok_status();
  if (with_embedding.size() != 1 || with_head.size() != 1) {
    return data_loss("the embedding of the tied matrix is on {} ranks and its head on {}, one each expected",
                     with_embedding.size(), with_head.size());
  }
  peer_ = embedding_ != nullptr ? with_head.front() : with_embedding.front();
  return ok_status();
}

Status TiedWeights::sum_gradients() {
  if (here()) {
    operators_->add(embedding_->gradient, head_->gradient, embedding_->gradient);
    return ok_status();
  }
  if (embedding_ != nullptr) return exchange_->add_received(peer_, embedding_->gradient);
  return head_ != nullptr ? exchange_->send(peer_, head_->gradient) : ok_status();
}

Status TiedWeights::share_weight() {
  if (here()) return ok_status();  // one matrix, used twice
  if (embedding_ != nullptr) return exchange_->send(peer_, embedding_->weight);
  if (head_ == nullptr) return ok_status();
  PENSTOCK_RETURN_IF_ERROR(exchange_->receive(peer_, head_->weight));
  operators_->pack(head_->weight, head_->packed);
  return ok_status();
}

}  // namespace penstock::worker
