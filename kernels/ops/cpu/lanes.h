// Sixteen floats at a time, written once and compiled for each instruction set.
//
// Bits: every operation here rounds as IEEE 754 says (add, subtract, multiply, divide, square root) and
// nothing is contracted, sums have a fixed tree, and exp is made of those operations. So our own loops give
// the same bits on every x86-64 CPU; only the width of the registers differs. Use: vectorised([&]()
// PENSTOCK_INLINE { ... }) runs the body with the widest registers of this CPU; everything that the body
// calls on Lanes must be PENSTOCK_INLINE too, or it is compiled for the baseline.
#pragma once

#include <emmintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/tensor/bfloat16.h"

#define PENSTOCK_INLINE __attribute__((always_inline))

// Vectors are passed by reference and every function that returns one is inlined: no calling convention is
// involved.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace penstock::kernels::cpu {

constexpr int64_t kLanes = 16;

typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));
typedef uint32_t BitLanes __attribute__((vector_size(64)));
typedef uint16_t ShortLanes __attribute__((vector_size(32)));
typedef float HalfLanes __attribute__((vector_size(32)));
typedef float QuarterLanes __attribute__((vector_size(16)));
typedef double DoubleLanes __attribute__((vector_size(64)));  // eight
typedef float UnalignedLanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t UnalignedShortLanes __attribute__((vector_size(32), aligned(2), may_alias));

PENSTOCK_INLINE inline Lanes broadcast(float value) {
  return Lanes{} + value;
}
PENSTOCK_INLINE inline Lanes load(const float* from) {
  return *reinterpret_cast<const UnalignedLanes*>(from);
}
PENSTOCK_INLINE inline void store(float* to, const Lanes& value) {
  *reinterpret_cast<UnalignedLanes*>(to) = value;
}

PENSTOCK_INLINE inline Lanes widen(const ShortLanes& x) {
  return reinterpret_cast<Lanes>(__builtin_convertvector(x, BitLanes) << 16);
}
// As to_bfloat16().
PENSTOCK_INLINE inline ShortLanes narrow(const Lanes& x) {
  const BitLanes bits = reinterpret_cast<BitLanes>(x);
  const BitLanes rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  return __builtin_convertvector((x == x ? rounded : bits | 0x400000u) >> 16, ShortLanes);
}
PENSTOCK_INLINE inline ShortLanes load_narrow(const BFloat16* from) {
  return *reinterpret_cast<const UnalignedShortLanes*>(from);  // by value: a reference would claim alignment
}
PENSTOCK_INLINE inline Lanes load(const BFloat16* from) {
  return widen(load_narrow(from));
}
PENSTOCK_INLINE inline void store(BFloat16* to, const Lanes& value) {
  *reinterpret_cast<UnalignedShortLanes*>(to) = narrow(value);
}

// Access to sixteen elements, or to the last few of a row: missing ones read as `missing` and are not
// written.
struct WholeLanes {
  template <typename Element>
  PENSTOCK_INLINE Lanes load(const Element* from, float = 0) const {
    return cpu::load(from);
  }
  template <typename Element>
  PENSTOCK_INLINE void store(Element* to, const Lanes& value) const {
    cpu::store(to, value);
  }
};
struct PartLanes {
  int64_t count;
  PENSTOCK_INLINE Lanes load(const float* from, float missing = 0) const {
    Lanes value = broadcast(missing);
    std::memcpy(&value, from, static_cast<size_t>(count) * sizeof(float));
    return value;
  }
  PENSTOCK_INLINE Lanes load(const BFloat16* from, float missing = 0) const {
    ShortLanes value = narrow(broadcast(missing));
    std::memcpy(&value, from, static_cast<size_t>(count) * sizeof(BFloat16));
    return widen(value);
  }
  PENSTOCK_INLINE void store(float* to, const Lanes& value) const {
    std::memcpy(to, &value, static_cast<size_t>(count) * sizeof(float));
  }
  PENSTOCK_INLINE void store(BFloat16* to, const Lanes& value) const {
    const ShortLanes narrowed = narrow(value);
    std::memcpy(to, &narrowed, static_cast<size_t>(count) * sizeof(BFloat16));
  }
};

// Calls body(access, index) for sixteen elements at a time.
template <typename Body>
PENSTOCK_INLINE inline void for_each_lanes(int64_t count, const Body& body) {
  int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) body(WholeLanes{}, index);
  if (index < count) body(PartLanes{count - index}, index);
}

// Sum of the lanes: halves are added, four times.
PENSTOCK_INLINE inline float sum(const Lanes& x) {
  const HalfLanes a = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                      __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  const QuarterLanes b =
      __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  return (b[0] + b[2]) + (b[1] + b[3]);
}

PENSTOCK_INLINE inline double sum(const DoubleLanes& x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

// Sum of a[i] b[i] in four interleaved sums, which hide the latency of the additions.
template <typename Left, typename Right>
PENSTOCK_INLINE inline float dot(const Left* a, const Right* b, int64_t count) {
  Lanes sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int s = 0; s < 4; ++s) sums[s] += load(a + i + s * kLanes) * load(b + i + s * kLanes);
  }
  for_each_lanes(count - i, [&](const auto& lanes, int64_t j) PENSTOCK_INLINE {
    sums[0] += lanes.load(a + i + j) * lanes.load(b + i + j);
  });
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

PENSTOCK_INLINE inline Lanes larger(const Lanes& a, const Lanes& b) {
  return a > b ? a : b;
}

// Largest lane; lanes that are not numbers may be passed over.
PENSTOCK_INLINE inline float largest(const Lanes& x) {
  const HalfLanes low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
  const HalfLanes high = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  const HalfLanes a = low > high ? low : high;
  const QuarterLanes front = __builtin_shufflevector(a, a, 0, 1, 2, 3);
  const QuarterLanes back = __builtin_shufflevector(a, a, 4, 5, 6, 7);
  const QuarterLanes b = front > back ? front : back;
  const float even = b[0] > b[2] ? b[0] : b[2];
  const float odd = b[1] > b[3] ? b[1] : b[3];
  return even > odd ? even : odd;
}

// The first `count` lanes of x, `other` in the rest.
PENSTOCK_INLINE inline Lanes first_lanes(const Lanes& x, int64_t count, float other) {
  const IntLanes index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return index < static_cast<int32_t>(count) ? x : broadcast(other);
}
// The last `count` lanes of x, `other` before them.
PENSTOCK_INLINE inline Lanes last_lanes(const Lanes& x, int64_t count, float other) {
  const IntLanes index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return index < static_cast<int32_t>(kLanes - count) ? broadcast(other) : x;
}

PENSTOCK_INLINE inline DoubleLanes lower_doubles(const Lanes& x) {
  return __builtin_convertvector(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7), DoubleLanes);
}
PENSTOCK_INLINE inline DoubleLanes upper_doubles(const Lanes& x) {
  return __builtin_convertvector(__builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15), DoubleLanes);
}

PENSTOCK_INLINE inline Lanes square_root(const Lanes& x) {
  Lanes result;
  for (int i = 0; i < 4; ++i) {
    __m128 quarter;
    std::memcpy(&quarter, reinterpret_cast<const char*>(&x) + 16 * i, 16);
    quarter = _mm_sqrt_ps(quarter);
    std::memcpy(reinterpret_cast<char*>(&result) + 16 * i, &quarter, 16);
  }
  return result;
}

// e^x within 2 units of the last place; 0 below -87 (where the result would lose bits), e^88 above 88, NaN of
// NaN.
PENSTOCK_INLINE inline Lanes exp(const Lanes& x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // nine bits: its product with a small integer is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 x 2^23: adding it rounds to an integer in the low bits
  const Lanes bounded = x > 88.0f ? broadcast(88.0f) : (x < -87.0f ? broadcast(-87.0f) : x);
  const Lanes shifted = bounded * kLog2E + kRound;
  const Lanes exponent = shifted - kRound;
  const Lanes r = (bounded - exponent * kLn2High) - exponent * kLn2Low;  // |r| <= ln(2) / 2
  // Taylor's polynomial: the first term left out is below 1e-8.
  Lanes p = r * (1.0f / 5040) + (1.0f / 720);
  p = p * r + (1.0f / 120);
  p = p * r + (1.0f / 24);
  p = p * r + (1.0f / 6);
  p = p * r + 0.5f;
  const Lanes power = p * (r * r) + r + 1.0f;
  const IntLanes scaled = reinterpret_cast<IntLanes>(power) + (reinterpret_cast<IntLanes>(shifted) << 23);
  const Lanes result = x < -87.0f ? Lanes{} : reinterpret_cast<Lanes>(scaled);
  return x == x ? result : x;
}

enum class InstructionSet { Baseline, Avx2, Avx512 };
inline InstructionSet instruction_set() {
  static const InstructionSet found = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      return InstructionSet::Avx512;
    }
    return __builtin_cpu_supports("avx2") ? InstructionSet::Avx2 : InstructionSet::Baseline;
  }();
  return found;
}

template <typename Body>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) void run_with_avx512(
    const Body& body) {
  body();
}
template <typename Body>
__attribute__((target("avx2"))) void run_with_avx2(const Body& body) {
  body();
}

template <typename Body>
void vectorised(const Body& body) {
  switch (instruction_set()) {
    case InstructionSet::Avx512:
      return run_with_avx512(body);
    case InstructionSet::Avx2:
      return run_with_avx2(body);
    case InstructionSet::Baseline:
      return body();
  }
}

}  // namespace penstock::kernels::cpu
