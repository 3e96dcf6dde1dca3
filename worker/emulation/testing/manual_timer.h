// A timer whose clock moves only when somebody sleeps: what a device's timeline says is then what its clock says.
#pragma once

#include <algorithm>

#include "worker/emulation/timer.h"

namespace penstock::worker {

class ManualTimer final : public Timer {
 public:
  TimePoint now() override { return now_; }
  void sleep_until(TimePoint moment) override { now_ = std::max(now_, moment); }
  // The host was busy with something else.
  void pass(Duration lost) { now_ += lost; }

 private:
  TimePoint now_{};
};

}  // namespace penstock::worker
