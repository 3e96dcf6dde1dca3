// bfloat16: the upper half of a float32. A type of memory only; arithmetic is done in float32.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

struct BFloat16 {
  uint16_t bits;

  friend bool operator==(BFloat16, BFloat16) = default;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// To nearest, ties to even; overflow becomes infinity, and what is not a number stays so.
inline BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// The nearest float32 that bfloat16 holds.
inline float rounded_to_bfloat16(float value) {
  return to_float(to_bfloat16(value));
}

}  // namespace penstock::kernels
