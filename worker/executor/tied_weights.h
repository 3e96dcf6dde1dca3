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
// Where both ends are on one rank, its two uses share the matrix. With two replicas of every stage (DualPipe, Chimera)
// that is so on two ranks, and both form the same sum, each of what the replicas have added up before.
//
// Errors: those of the endpoint. Thread: the interpreter's, at the same place among the messages of both ranks.
#pragma once

#include <memory>
#include <optional>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/ops/operators.h"
#include "worker/executor/chunked_exchange.h"
#include "worker/model/parameters.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

class TiedWeights {
 public:
  // Collective over all ranks of the open endpoint: the ranks tell each other which end they hold. DataLoss
  // unless one rank holds each, or every rank that holds one holds both. `parameters` and `operators` outlive it.
  static StatusOr<std::unique_ptr<TiedWeights>> create(Endpoint& endpoint, RankIndex rank, int ranks,
                                                       const ParameterStore& parameters,
                                                       kernels::Operators& operators);

  // After the last backward and before the norm. Nothing happens on a rank that holds neither end.
  Status sum_gradients();
  // After the weights were made or updated: the head's copy gets the owner's bits.
  Status share_weight();

  // Memory account: what messages pass through.
  int64_t bytes() const { return exchange_ ? ChunkedExchange::kMemoryBytes : 0; }

 private:
  TiedWeights(Endpoint& endpoint, const ParameterStore& parameters, kernels::Operators& operators)
      : embedding_(parameters.tied_embedding()), head_(parameters.tied_head()), operators_(&operators) {
    if (is_apart()) exchange_.emplace(endpoint, operators);
  }
  Status meet(Endpoint& endpoint, RankIndex rank, int ranks);

  bool here() const { return embedding_ != nullptr && head_ != nullptr; }
  // One end is here and the other is not.
  bool is_apart() const { return (embedding_ != nullptr) != (head_ != nullptr); }

  const Parameter* embedding_;  // null where another rank holds it
  const Parameter* head_;
  kernels::Operators* operators_;
  RankIndex peer_;                           // that holds the other end
  std::optional<ChunkedExchange> exchange_;  // where an end is elsewhere
};

}  // namespace penstock::worker
