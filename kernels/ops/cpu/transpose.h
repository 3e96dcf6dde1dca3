// Transposes 16 x 16 blocks of 32-bit values: one float32, or two bfloat16 side by side.
#pragma once

#include "kernels/ops/cpu/lanes.h"

namespace penstock::kernels::cpu {

typedef uint32_t UnalignedBitLanes
    __attribute__((vector_size(64), aligned(2), may_alias));  // of bfloat16 too

PENSTOCK_INLINE inline BitLanes load_bits(const void* from) {
  return *static_cast<const UnalignedBitLanes*>(from);
}
PENSTOCK_INLINE inline void store_bits(void* to, const BitLanes& value) {
  *static_cast<UnalignedBitLanes*>(to) = value;
}

// Sixteen values of a and of b, one of each after the other: a[0] b[0] a[1] b[1] ...
PENSTOCK_INLINE inline BitLanes interleave(const ShortLanes& a, const ShortLanes& b) {
  return __builtin_convertvector(a, BitLanes) | __builtin_convertvector(b, BitLanes) << 16;
}

// Exchanges, between rows i and i + Distance, the blocks of `Distance` lanes that stand off the diagonal.
#define PENSTOCK_EXCHANGE(distance, kept, moved)                               \
  for (int i = 0; i < 16; ++i) {                                               \
    if ((i & distance) != 0) continue;                                         \
    const BitLanes a = rows[i];                                                \
    const BitLanes b = rows[i + distance];                                     \
    rows[i] = __builtin_shufflevector(a, b, PENSTOCK_UNPACK kept);             \
    rows[i + distance] = __builtin_shufflevector(a, b, PENSTOCK_UNPACK moved); \
  }
#define PENSTOCK_UNPACK(...) __VA_ARGS__

PENSTOCK_INLINE inline void transpose(BitLanes (&rows)[16]) {
  PENSTOCK_EXCHANGE(8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                    (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
  PENSTOCK_EXCHANGE(4, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                    (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
  PENSTOCK_EXCHANGE(2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                    (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
  PENSTOCK_EXCHANGE(1, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
                    (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
}

#undef PENSTOCK_EXCHANGE
#undef PENSTOCK_UNPACK

}  // namespace penstock::kernels::cpu
