// The first pass of a softmax over one row, as the head's loss takes it.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ops/cpu/lanes.h"

namespace penstock::kernels::cpu {

struct Exponentials {
  float largest;  // of the row
  float sum;      // of exp(value - largest)
};

// The exponentials of `count` values, less the largest one, in place, added up lane by lane.
PENSTOCK_INLINE inline Exponentials exponentials(float* row, int64_t count) {
  Lanes most = broadcast(-INFINITY);
  for_each_lanes(count, [&](const auto& lanes, int64_t i)
                            PENSTOCK_INLINE { most = larger(lanes.load(row + i, -INFINITY), most); });
  const float offset = largest(most);
  Lanes sums{};
  for_each_lanes(count, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
    const Lanes value = exp(lanes.load(row + i, -INFINITY) - offset);
    sums += value;
    lanes.store(row + i, value);
  });
  return {offset, sum(sums)};
}

}  // namespace penstock::kernels::cpu
