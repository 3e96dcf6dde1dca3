// What the parts of a simulation share: chance, time, and a voice for histories that are replayed.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <utility>

#include "coordinator/core/event.h"

namespace penstock::coordinator::testing {

struct Scene {
  std::mt19937_64 random;
  bool is_told = false;  // on stdout: the coordinator's log, and messages of consequence
  Now now{TimePoint{} + std::chrono::hours(1), 1'700'000'000'000};

  int below(int bound) { return static_cast<int>(random() % static_cast<uint64_t>(bound)); }
  bool one_in(int n) { return below(n) == 0; }

  void pass(Duration by) {
    now.time += by;
    now.unix_ms += std::chrono::duration_cast<std::chrono::milliseconds>(by).count();
  }

  template <typename... Args>
  void tell(fmt::format_string<Args...> format, Args&&... args) const {
    if (!is_told) return;
    fmt::print("{} {}\n", now.unix_ms % 10'000'000, fmt::format(format, std::forward<Args>(args)...));
  }
};

}  // namespace penstock::coordinator::testing
