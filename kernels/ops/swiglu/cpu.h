// The gate of SwiGLU on lanes, for the operations that apply it.
#pragma once

#include "kernels/ops/cpu/lanes.h"

namespace penstock::kernels::cpu {

PENSTOCK_INLINE inline Lanes sigmoid(const Lanes& x) {
  return 1.0f / (1.0f + exp(-x));
}

}  // namespace penstock::kernels::cpu
