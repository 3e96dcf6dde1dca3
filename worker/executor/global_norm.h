// The norm of the whole model's gradient, with the same bits on every rank: each gives the squared norms of
// its own parameters to all, and each adds all of them in model order.
//
// A parameter that two ranks hold (replicas of its stage) counts once. Both must give the same bits: their gradients are
// one sum. So a sum over replicas that went wrong ends the step in which it did.
//
// Thread: the interpreter's. compute() exchanges over point-to-point messages; nothing is allocated for that.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "worker/model/parameters.h"
#include "worker/optimizer/adamw.h"
#include "worker/transport/all_gather.h"

namespace penstock::worker {

class GlobalNorm {
 public:
  // Of what the ranks hold together.
  struct Whole {
    int64_t parameters = 0;  // of the model
    int replicas = 1;        // ranks that may hold one parameter
  };
  // Collective over the open endpoint: the ranks tell each other which parameters they own. DataLoss when
  // together they do not own each of the model's parameters once, or at most `replicas` times.
  static StatusOr<std::unique_ptr<GlobalNorm>> create(Endpoint& endpoint, RankIndex rank, int ranks,
                                                      std::span<const Parameter> mine, const Whole& whole);

  // Collective. `mine` in model order. DataLoss: replicas of a gradient differ.
  StatusOr<double> compute(std::span<const SquaredNorm> mine);

 private:
  // A number that a rank gives, and which parameter's squared norm it is.
  struct Given {
    size_t parameter = 0;  // its place in all_
    RankIndex first;       // the rank that gives it first
  };

  GlobalNorm(AllGather values, std::vector<std::vector<Given>> given, std::vector<SquaredNorm> all)
      : values_(std::move(values)),
        given_(std::move(given)),
        all_(std::move(all)),
        norm_(static_cast<int64_t>(all_.size())) {}

  AllGather values_;
  std::vector<std::vector<Given>> given_;  // [rank], in the order of its part of values_
  std::vector<SquaredNorm> all_;           // by the rank that gives it first
  GradientNorm norm_;
};

}  // namespace penstock::worker
