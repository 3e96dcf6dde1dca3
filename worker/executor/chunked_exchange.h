// Moves a float32 tensor to another rank, or adds it to another rank's, in messages of at most kChunkBytes, kInFlight at
// a time: nothing grows with the tensor.
//
// A call is one half of an exchange; the peer makes the other half at the same place among its messages:
//     send   with receive        the target gets the source's bits
//     send   with add_received   target += source
// Errors: those of the endpoint. Thread: the interpreter's. All memory is taken by the constructor.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/ops/operators.h"
#include "kernels/tensor/tensor.h"
#include "worker/transport/endpoint.h"
#include "worker/transport/pending_transfers.h"

namespace penstock::worker {

class ChunkedExchange {
 public:
  static constexpr int64_t kChunkBytes = 1 << 20;
  static constexpr int kInFlight = 2;
  static constexpr int64_t kMemoryBytes = kInFlight * kChunkBytes;

  // Both outlive it.
  ChunkedExchange(Endpoint& endpoint, kernels::Operators& operators);

  Status send(RankIndex peer, kernels::TensorView tensor);
  Status receive(RankIndex peer, kernels::TensorView tensor);
  Status add_received(RankIndex peer, kernels::TensorView tensor);

 private:
  kernels::TensorView received(const kernels::TensorView& tensor, int64_t chunk);
  void add(const kernels::TensorView& tensor, int64_t chunk);
  template <typename Post, typename Use>
  Status in_chunks(const kernels::TensorView& tensor, const Post& post, const Use& use);

  kernels::Operators* operators_;
  std::vector<float> received_;                    // kInFlight chunks
  std::array<PendingTransfers, kInFlight> slots_;  // into received_ and the tensors: end before them
};

}  // namespace penstock::worker
