// A clock that one can sleep by, until a moment and never for a while: a wake-up that is late does not move the next.
#pragma once

#include <memory>

#include "base/clock.h"

namespace penstock::worker {

class Timer {
 public:
  virtual ~Timer() = default;
  virtual TimePoint now() = 0;
  // Returns at once when `moment` has passed.
  virtual void sleep_until(TimePoint moment) = 0;
};

// CLOCK_MONOTONIC, which all processes of a host share. The thread that calls this is the one that will sleep: its
// wake-ups are no more put off for the sake of fewer interrupts (timer slack).
std::unique_ptr<Timer> make_system_timer();

}  // namespace penstock::worker
