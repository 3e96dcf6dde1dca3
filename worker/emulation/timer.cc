#include "worker/emulation/timer.h"

#include <sys/prctl.h>

#include <cerrno>
#include <ctime>

namespace penstock::worker {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

class SystemTimer final : public Timer {
 public:
  SystemTimer() { prctl(PR_SET_TIMERSLACK, 1UL); }

  TimePoint now() override { return clock_.now(); }

  void sleep_until(TimePoint moment) override {
    if (moment <= now()) return;
    const int64_t ns = moment.time_since_epoch().count();
    const timespec wanted{.tv_sec = ns / kNsPerSecond, .tv_nsec = ns % kNsPerSecond};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wanted, nullptr) == EINTR) {
    }
  }

 private:
  SystemClock clock_;
};

}  // namespace

std::unique_ptr<Timer> make_system_timer() {
  return std::make_unique<SystemTimer>();
}

}  // namespace penstock::worker
