// The norm of the whole model's gradient, with the same bits on every rank: each gives the squared norms of
// its own parameters to all, and each adds all of them in model order.
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
  // Collective over the open endpoint: the ranks tell each other which parameters they own. DataLoss when
  // together they do not own each of the model's parameters once.
  static StatusOr<std::unique_ptr<GlobalNorm>> create(Endpoint& endpoint, RankIndex rank, int ranks,
                                                      std::span<const Parameter> mine,
                                                      int64_t model_parameters);

  // Collective. `mine` in model order.
  StatusOr<double> compute(std::span<const SquaredNorm> mine);

 private:
  GlobalNorm(AllGather values, std::vector<SquaredNorm> all, int ranks)
      : values_(std::move(values)),
        all_(std::move(all)),
        ranks_(ranks),
        norm_(static_cast<int64_t>(all_.size())) {}

  AllGather values_;
  std::vector<SquaredNorm> all_;  // of every rank, in rank order
  int ranks_;
  GradientNorm norm_;
};

}  // namespace penstock::worker
