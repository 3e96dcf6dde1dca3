// What the two ends of a tied matrix exchange at the end of every step.
//
//     the embedding's rank                                the head's rank
//     gradient += the head's accumulator            <---  its accumulator
//     (norm, AdamW: the matrix is one parameter of this rank)
//     the new weight                                --->  its copy
//
// The sum is embedding + head, in this order, formed once a step, whether the two are on one rank or on two
// (numerics contract). One end owns the weight and its moments, so the copies cannot drift apart.
//
// Messages of at most kChunkBytes, kInFlight at a time: nothing grows with the matrix.
// Errors: those of the endpoint. Thread: the interpreter's, at the same place among the messages of both ranks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/ops/operators.h"
#include "worker/model/parameters.h"
#include "worker/transport/endpoint.h"
#include "worker/transport/pending_transfers.h"

namespace penstock::worker {

class TiedWeights {
 public:
  static constexpr int64_t kChunkBytes = 1 << 20;
  static constexpr int kInFlight = 2;

  // Collective over all ranks of the open endpoint: the ranks tell each other which end they hold. DataLoss
  // unless one rank holds each. `parameters` and `operators` outlive it.
  static StatusOr<std::unique_ptr<TiedWeights>> create(Endpoint& endpoint, RankIndex rank, int ranks,
                                                       const ParameterStore& parameters,
                                                       kernels::Operators& operators);

  // After the last backward and before the norm. Nothing happens on a rank that holds neither end.
  Status sum_gradients();
  // After the weights were made or updated: the head's copy gets the owner's bits.
  Status share_weight();

 private:
  TiedWeights(Endpoint& endpoint, const ParameterStore& parameters, kernels::Operators& operators);
  Status meet(Endpoint& endpoint, RankIndex rank, int ranks);

  bool here() const { return embedding_ != nullptr && head_ != nullptr; }
  int64_t chunks() const;
  kernels::TensorView chunk_of(kernels::TensorView matrix, int64_t chunk) const;
  Status send(kernels::TensorView matrix);
  Status receive(kernels::TensorView matrix);
  Status add_received(kernels::TensorView matrix);
  template <typename Post, typename Use>
  Status in_chunks(const Post& post, const Use& use);

  const Parameter* embedding_;  // null where another rank holds it
  const Parameter* head_;
  kernels::Operators* operators_;
  RankIndex peer_;                                 // that holds the other end
  std::vector<float> received_;                    // kInFlight chunks, at the owner
  std::array<PendingTransfers, kInFlight> slots_;  // into received_ and the matrices: end before them
};

}  // namespace penstock::worker
