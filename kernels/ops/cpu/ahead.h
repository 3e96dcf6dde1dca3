// Memory that comes into the cache while something else is computed, a few lines with each of its steps. No value depends
// on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/ops/cpu/lanes.h"

namespace penstock::kernels::cpu {

inline std::span<const char> memory_of(const float* values, int64_t count) {
  return {reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(float)};
}

class Ahead {
 public:
  Ahead() = default;  // nothing comes
  // Where more than a few lines would come with a step, all come at once, here: in front of them it is faster.
  Ahead(std::span<const char> memory, int64_t steps)
      : memory_(memory.data()),
        bytes_(std::ssize(memory)),
        share_((bytes_ + steps * kLine - 1) / (steps * kLine) * kLine) {
    if (share_ <= kMostOfStep) return;
    for (int64_t i = 0; i < bytes_; i += kLine) __builtin_prefetch(memory_ + i);
    bytes_ = 0;
  }

  // In step 0, 1, .. steps - 1.
  PENSTOCK_INLINE void bring(int64_t step) const {
    const int64_t end = std::min(bytes_, (step + 1) * share_);
    for (int64_t i = step * share_; i < end; i += kLine) __builtin_prefetch(memory_ + i);
  }

 private:
  static constexpr int64_t kLine = 64;
  static constexpr int64_t kMostOfStep = 32 * kLine;
  const char* memory_ = nullptr;
  int64_t bytes_ = 0;
  int64_t share_ = 0;  // bytes of a step
};

}  // namespace penstock::kernels::cpu
