// How long a rank has waited for the others of its groups in the midst of a computation: what of an action's time was none
// of its own work. Thread: the interpreter's.
#pragma once

#include <utility>

#include "base/clock.h"

namespace penstock::worker {

class WaitMeter {
 public:
  // `clock` outlives it.
  explicit WaitMeter(const Clock& clock) : clock_(&clock) {}

  // Runs `wait` and counts how long it took.
  template <typename Wait>
  auto measure(const Wait& wait) {
    const TimePoint start = clock_->now();
    auto result = wait();
    waited_ += clock_->now() - start;
    return result;
  }
  // Since the last take().
  Duration so_far() const { return waited_; }
  Duration take() { return std::exchange(waited_, Duration::zero()); }

 private:
  const Clock* clock_;
  Duration waited_{};
};

}  // namespace penstock::worker
