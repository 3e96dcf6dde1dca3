// The loss of one step: sums by microbatch, added up in microbatch order.
//
// A schedule may run the forwards of the loss stage in any order; the total has the same bits all the same.
// Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace penstock::worker {

class StepLoss {
 public:
  explicit StepLoss(int64_t microbatches) : sums_(static_cast<size_t>(microbatches)) {}

  void clear();
  // Internal: a microbatch that is not of the step, or its second forward; was begin_step() forgotten?
  Status record(MicrobatchIndex microbatch, double sum);
  // Of the microbatches recorded so far.
  double total() const;

 private:
  std::vector<std::optional<double>> sums_;
};

}  // namespace penstock::worker
