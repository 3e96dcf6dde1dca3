// The norm of the whole model's gradient, with the same bits on every rank of a pipeline: each gives the squared norms of
// its stages' parameters to all, and each adds all of them in model order. A parameter that two ranks hold (replicas of
// its stage) counts once.
//
// Thread: the interpreter's. compute() exchanges over point-to-point messages; nothing is allocated for that.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "worker/executor/group_endpoints.h"
#include "worker/executor/shared_norms.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {

class GlobalNorm {
 public:
  // Of what the ranks hold together.
  struct Whole {
    int64_t parameters = 0;  // of the model
    int replicas = 1;        // ranks that may hold one parameter
  };
  // Collective over the group, which is open; errors of SharedNorms::create. `mine`: places in the model.
  static StatusOr<std::unique_ptr<GlobalNorm>> create(const JoinedGroup& group, std::span<const int32_t> mine,
                                                      const Whole& whole);

  // Collective. `mine` in model order. DataLoss: replicas of a gradient differ.
  StatusOr<double> compute(std::span<const SquaredNorm> mine);

 private:
  GlobalNorm(std::unique_ptr<SharedNorms> norms, int64_t parameters)
      : norms_(std::move(norms)), norm_(parameters) {}

  std::unique_ptr<SharedNorms> norms_;
  GradientNorm norm_;
};

}  // namespace penstock::worker
