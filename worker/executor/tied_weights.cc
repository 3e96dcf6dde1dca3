#include "worker/executor/tied_weights.h"

#include <algorithm>

#include "worker/transport/all_gather.h"

namespace penstock::worker {
namespace {

constexpr int64_t kChunkElements = TiedWeights::kChunkBytes / static_cast<int64_t>(sizeof(float));

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

TiedWeights::TiedWeights(Endpoint& endpoint, const ParameterStore& parameters, kernels::Operators& operators)
    : embedding_(parameters.tied_embedding()),
      head_(parameters.tied_head()),
      operators_(&operators),
      slots_{PendingTransfers(endpoint, 1), PendingTransfers(endpoint, 1)} {
  if (embedding_ != nullptr && head_ == nullptr) {
    received_.resize(static_cast<size_t>(kInFlight * kChunkElements));
  }
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
  if (embedding_ != nullptr) return add_received(embedding_->gradient);
  return head_ != nullptr ? send(head_->gradient) : ok_status();
}

Status TiedWeights::share_weight() {
  if (here()) return ok_status();  // one matrix, used twice
  if (embedding_ != nullptr) return send(embedding_->weight);
  if (head_ == nullptr) return ok_status();
  PENSTOCK_RETURN_IF_ERROR(receive(head_->weight));
  operators_->pack(head_->weight, head_->packed);
  return ok_status();
}

Status TiedWeights::send(kernels::TensorView matrix) {
  const auto post = [&](PendingTransfers& slot, int64_t chunk) {
    const kernels::TensorView part = chunk_of(matrix, chunk);
    return slot.post_send(peer_, part.data(), part.bytes());
  };
  return in_chunks(post, [](int64_t) {});
}

Status TiedWeights::receive(kernels::TensorView matrix) {
  const auto post = [&](PendingTransfers& slot, int64_t chunk) {
    const kernels::TensorView part = chunk_of(matrix, chunk);
    return slot.post_receive(peer_, part.data(), part.bytes());
  };
  return in_chunks(post, [](int64_t) {});
}

Status TiedWeights::add_received(kernels::TensorView matrix) {
  const auto received = [&](int64_t chunk) {
    const int64_t elements = chunk_of(matrix, chunk).elements();
    return kernels::TensorView(received_.data() + chunk % kInFlight * kChunkElements,
                               kernels::DataType::Float32, {elements});
  };
  const auto post = [&](PendingTransfers& slot, int64_t chunk) {
    const kernels::TensorView part = received(chunk);
    return slot.post_receive(peer_, part.data(), part.bytes());
  };
  return in_chunks(post, [&](int64_t chunk) {
    const kernels::TensorView sum = chunk_of(matrix, chunk);
    operators_->add(sum, received(chunk), sum);
  });
}

int64_t TiedWeights::chunks() const {
  const Parameter& mine = embedding_ != nullptr ? *embedding_ : *head_;
  return (mine.spec.elements() + kChunkElements - 1) / kChunkElements;
}

kernels::TensorView TiedWeights::chunk_of(kernels::TensorView matrix, int64_t chunk) const {
  const int64_t first = chunk * kChunkElements;
  return {matrix.f32() + first,
          kernels::DataType::Float32,
          {std::min(kChunkElements, matrix.elements() - first)}};
}

// post(slot, chunk) for all chunks, at most kInFlight of them under way; use(chunk) when it has arrived.
template <typename Post, typename Use>
Status TiedWeights::in_chunks(const Post& post, const Use& use) {
  const auto step = [&](int64_t next) -> Status {
    PendingTransfers& slot = slots_[static_cast<size_t>(next % kInFlight)];
    if (next >= kInFlight) {
      PENSTOCK_RETURN_IF_ERROR(slot.wait());
      use(next - kInFlight);
    }
    return next < chunks() ? post(slot, next) : ok_status();
  };
  for (int64_t next = 0; next < chunks() + kInFlight; ++next) {
    if (const Status status = step(next); !status.ok()) {
      for (PendingTransfers& slot : slots_) (void)slot.give_up(status);
      return status;
    }
  }
  return ok_status();
}

}  // namespace penstock::worker
