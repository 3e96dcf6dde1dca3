// A device that computes nothing and takes its time.
//
// What is real: the coordinator, the daemons, one executor process a rank, the interpreter and its program, leases and
// slots, every message and every wait, and the clock that measures them all.
// What is modelled: how long an action takes (the job's cost table), and how long a message is on its way (links.h).
//
// The device has a timeline of its own. An action starts on it when the one before has ended and its input has come,
// ends `takes` later, and the thread sleeps until that moment, which is absolute. A thread that wakes late is late on
// the timeline, and catches up in its next sleep: lateness does not add up along a chain of actions. Where the host is
// too slow to catch up, the timeline does not hide it: steps are timed by the clock, every step starts anew at the
// clock (start_now), and the largest lateness is said.
//
// Thread: the interpreter's.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "worker/emulation/timer.h"

namespace penstock::worker {

class EmulatedDevice {
 public:
  // `timer` outlives it.
  explicit EmulatedDevice(Timer& timer) : timer_(timer) {}

  // Where the device stands on its timeline. Before the first action: now.
  TimePoint time() {
    if (!started_) start_now();
    return time_;
  }
  TimePoint clock_now() { return timer_.now(); }

  // From here on the timeline goes on from the clock.
  void start_now() {
    time_ = started_ ? std::max(time_, timer_.now()) : timer_.now();
    started_ = true;
  }
  // Sleeps until an action is over that starts now on the timeline.
  void run(Duration takes) { reach(time() + takes); }
  // Sleeps until `moment`, where the timeline has not passed it.
  void reach(TimePoint moment) {
    time_ = std::max(time(), moment);
    timer_.sleep_until(time_);
    largest_lateness_ = std::max(largest_lateness_, timer_.now() - time_);
  }
  // The thread was held up by something real for so long: the device was, too.
  void hold_up(Duration lasted) { time_ = time() + lasted; }

  // How far the clock was ahead of the timeline at most, when an action or a transfer should have ended.
  Duration largest_lateness() const { return largest_lateness_; }

 private:
  Timer& timer_;
  bool started_ = false;
  TimePoint time_;
  Duration largest_lateness_{};
};

}  // namespace penstock::worker
