#include "worker/executor/chunked_exchange.h"

#include <algorithm>

namespace penstock::worker {
namespace {

constexpr int64_t kChunkElements = ChunkedExchange::kChunkBytes / static_cast<int64_t>(sizeof(float));

int64_t chunks_of(const kernels::TensorView& tensor) {
  return (tensor.elements() + kChunkElements - 1) / kChunkElements;
}

kernels::TensorView chunk_of(const kernels::TensorView& tensor, int64_t chunk) {
  const int64_t first = chunk * kChunkElements;
  return {tensor.f32() + first,
          kernels::DataType::Float32,
          {std::min(kChunkElements, tensor.elements() - first)}};
}

}  // namespace

ChunkedExchange::ChunkedExchange(Endpoint& endpoint, kernels::Operators& operators)
    : operators_(&operators),
      received_(static_cast<size_t>(kInFlight * kChunkElements)),
      slots_{PendingTransfers(endpoint, 2), PendingTransfers(endpoint, 2)} {}

Status ChunkedExchange::send(RankIndex peer, kernels::TensorView tensor) {
  const auto post = [&](PendingTransfers& slot, int64_t chunk) {
    const kernels::TensorView part = chunk_of(tensor, chunk);
    return slot.post_send(peer, part.data(), part.bytes());
  };
  return in_chunks(tensor, post, [](int64_t) {});
}

Status ChunkedExchange::receive(RankIndex peer, kernels::TensorView tensor) {
  const auto post = [&](PendingTransfers& slot, int64_t chunk) {
    const kernels::TensorView part = chunk_of(tensor, chunk);
    return slot.post_receive(peer, part.data(), part.bytes());
  };
  return in_chunks(tensor, post, [](int64_t) {});
}

Status ChunkedExchange::add_received(RankIndex peer, kernels::TensorView tensor) {
  const auto post = [&](PendingTransfers& slot, int64_t chunk) {
    const kernels::TensorView part = received(tensor, chunk);
    return slot.post_receive(peer, part.data(), part.bytes());
  };
  return in_chunks(tensor, post, [&](int64_t chunk) { add(tensor, chunk); });
}

// Where the chunk of the peer's tensor arrives.
kernels::TensorView ChunkedExchange::received(const kernels::TensorView& tensor, int64_t chunk) {
  return {received_.data() + chunk % kInFlight * kChunkElements,
          kernels::DataType::Float32,
          {chunk_of(tensor, chunk).elements()}};
}

void ChunkedExchange::add(const kernels::TensorView& tensor, int64_t chunk) {
  const kernels::TensorView sum = chunk_of(tensor, chunk);
  operators_->add(sum, received(tensor, chunk), sum);
}

// post(slot, chunk) for all chunks, at most kInFlight of them under way; use(chunk) when its transfers have ended.
template <typename Post, typename Use>
Status ChunkedExchange::in_chunks(const kernels::TensorView& tensor, const Post& post, const Use& use) {
  const int64_t chunks = chunks_of(tensor);
  const auto step = [&](int64_t next) -> Status {
    PendingTransfers& slot = slots_[static_cast<size_t>(next % kInFlight)];
    if (next >= kInFlight && next - kInFlight < chunks) {
      PENSTOCK_RETURN_IF_ERROR(slot.wait());
      use(next - kInFlight);
    }
    return next < chunks ? post(slot, next) : ok_status();
  };
  for (int64_t next = 0; next < chunks + kInFlight; ++next) {
    if (const Status status = step(next); !status.ok()) {
      for (PendingTransfers& slot : slots_) (void)slot.give_up(status);
      return status;
    }
  }
  return ok_status();
}

}  // namespace penstock::worker
