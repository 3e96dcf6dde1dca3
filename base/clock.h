// Time as a value: code that decides takes a TimePoint, code that waits takes a Clock.
//
// Thread: SystemClock and FakeClock may be used from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace penstock {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;  // monotonic, for decisions
using namespace std::chrono_literals;                                            // 2s, 100ms

inline double to_seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
inline double to_milliseconds(Duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  virtual int64_t unix_milliseconds() const = 0;  // for people and stores, never for decisions
};

class SystemClock final : public Clock {
 public:
  TimePoint now() const override;
  int64_t unix_milliseconds() const override;
};

// Moves only when told to. unix_milliseconds() starts at 1'700'000'000'000.
class FakeClock final : public Clock {
 public:
  TimePoint now() const override;
  int64_t unix_milliseconds() const override;
  void advance(Duration by);

 private:
  std::atomic<int64_t> elapsed_ns_{0};
};

// CPU time that the calling thread has used so far (CLOCK_THREAD_CPUTIME_ID).
Duration thread_cpu_time();

}  // namespace penstock
