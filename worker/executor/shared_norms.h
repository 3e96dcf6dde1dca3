// Squared norms of gradients that several ranks hold between them, each once and in model order, with the same bits on
// every rank: each rank gives those of its own parameters to all.
//
// Of a parameter that more than one rank holds all must give the same bits: their gradients are one sum. So a sum over
// replicas that went wrong ends the step in which it did.
//
// Thread: the interpreter's. gather() exchanges over point-to-point messages; nothing is allocated for that.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "worker/executor/group_endpoints.h"
#include "worker/optimizer/adamw.h"
#include "worker/transport/all_gather.h"

namespace penstock::worker {

class SharedNorms {
 public:
  // What the ranks hold together.
  struct Whole {
    std::string name;                 // "the model"
    std::vector<int32_t> parameters;  // by their places in the model, ascending
    int replicas = 1;                 // ranks that may hold one of them
  };
  // Collective over the group, which is open: the ranks tell each other which parameters they own; `mine` as above.
  // DataLoss when together they do not own each of the whole's parameters once, or at most `replicas` times.
  static StatusOr<std::unique_ptr<SharedNorms>> create(const JoinedGroup& group,
                                                       std::span<const int32_t> mine, const Whole& whole);

  // Collective. `mine` in model order. Valid until the next call. DataLoss: replicas of a gradient differ.
  StatusOr<std::span<const SquaredNorm>> gather(std::span<const SquaredNorm> mine);

 private:
  // A number that a rank gives, and which parameter's squared norm it is.
  struct Given {
    size_t place = 0;  // in all_
    RankIndex first;   // the rank that gives it first
  };

  SharedNorms(const JoinedGroup& group, AllGather values, std::vector<std::vector<Given>> given,
              std::vector<SquaredNorm> all)
      : group_(group), values_(std::move(values)), given_(std::move(given)), all_(std::move(all)) {}

  Status take(RankIndex rank, std::span<const double> values);

  const JoinedGroup& group_;
  AllGather values_;
  std::vector<std::vector<Given>> given_;  // [rank], in the order of its part of values_
  std::vector<SquaredNorm> all_;           // in model order
};

}  // namespace penstock::worker
