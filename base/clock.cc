#include "base/clock.h"

#include <ctime>

namespace penstock {

TimePoint SystemClock::now() const {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

int64_t SystemClock::unix_milliseconds() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TimePoint FakeClock::now() const {
  return TimePoint(Duration(elapsed_ns_.load()));
}

int64_t FakeClock::unix_milliseconds() const {
  return 1'700'000'000'000 + elapsed_ns_.load() / 1'000'000;
}

void FakeClock::advance(Duration by) {
  elapsed_ns_.fetch_add(by.count());
}

Duration thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace penstock
