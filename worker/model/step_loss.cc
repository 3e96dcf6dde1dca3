#include "worker/model/step_loss.h"

#include <algorithm>

namespace penstock::worker {

void StepLoss::clear() {
  std::fill(sums_.begin(), sums_.end(), std::nullopt);
}

Status StepLoss::record(MicrobatchIndex microbatch, double sum) {
  const auto index = static_cast<size_t>(microbatch.value);
  if (!microbatch.is_set() || index >= sums_.size()) {
    return internal_error("loss of microbatch {}: the step has {} microbatches", microbatch.value,
                          sums_.size());
  }
  if (sums_[index]) {
    return internal_error("loss of microbatch {} comes twice in one step; begin_step() starts the next",
                          microbatch.value);
  }
  sums_[index] = sum;
  return ok_status();
}

double StepLoss::total() const {
  double total = 0;
  for (const std::optional<double>& sum : sums_) total += sum.value_or(0);
  return total;
}

}  // namespace penstock::worker
