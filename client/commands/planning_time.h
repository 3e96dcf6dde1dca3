// The clock of those who plan; plan/ has none.
#pragma once

#include <chrono>
#include <functional>

namespace penstock::client {

// Says yes for so many seconds from now on.
inline std::function<bool()> until_from_now(double seconds) {
  const auto start = std::chrono::steady_clock::now();
  return [start, seconds] {
    return std::chrono::steady_clock::now() - start < std::chrono::duration<double>(seconds);
  };
}

}  // namespace penstock::client
