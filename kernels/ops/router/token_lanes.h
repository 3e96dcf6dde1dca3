// Sixteen tokens side by side, one in each lane: what stands in their rows becomes columns of sixteen. So a row of a few
// experts leaves no lanes empty, and a maximum, a sum or a choice goes down the columns without a branch.
//
// Bits: as token after token. Sums have the order that sum() and dot() of a row have (cpu/lanes.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/ops/cpu/lanes.h"

namespace penstock::kernels::cpu {

// columns [width, 16] of up to sixteen rows [tokens, width], and back. Lanes without a token keep what they hold.
template <typename Value>
PENSTOCK_INLINE inline void to_columns(const Value* rows, int64_t width, int64_t tokens, Value* columns) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) columns[i * kLanes + t] = rows[t * width + i];
  }
}
template <typename Value>
PENSTOCK_INLINE inline void to_rows(const Value* columns, int64_t width, int64_t tokens, Value* rows) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) rows[t * width + i] = columns[i * kLanes + t];
  }
}

PENSTOCK_INLINE inline IntLanes load(const int32_t* from) {
  IntLanes value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
PENSTOCK_INLINE inline void store(int32_t* to, const IntLanes& value) {
  std::memcpy(to, &value, sizeof(value));
}

// Sum of sixteen columns as sum() adds the lanes of one register.
PENSTOCK_INLINE inline Lanes sum_of_columns(Lanes (&columns)[kLanes]) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) columns[i] += columns[i + half];
  }
  return columns[0];
}

// Of each token: the sum of its values, which go into the lanes of a register one after another.
PENSTOCK_INLINE inline Lanes sum_of_values(const float* columns, int64_t width) {
  Lanes sums[kLanes] = {};
  for (int64_t lane = 0; lane < std::min(kLanes, width); ++lane) {
    for (int64_t i = lane; i < width; i += kLanes) sums[lane] += load(columns + i * kLanes);
  }
  return sum_of_columns(sums);
}

// As dot() of the tokens' rows.
PENSTOCK_INLINE inline Lanes dot_of_columns(const float* a, const float* b, int64_t width) {
  const auto product = [&](int64_t i) PENSTOCK_INLINE { return load(a + i * kLanes) * load(b + i * kLanes); };
  const int64_t whole = width / (4 * kLanes) * (4 * kLanes);
  Lanes sums[kLanes] = {};
  for (int64_t lane = 0; lane < std::min(kLanes, width); ++lane) {
    Lanes four[4] = {};
    for (int64_t i = lane; i < whole; i += 4 * kLanes) {
      for (int64_t s = 0; s < 4; ++s) four[s] += product(i + s * kLanes);
    }
    for (int64_t i = whole + lane; i < width; i += kLanes) four[0] += product(i);
    sums[lane] = (four[0] + four[1]) + (four[2] + four[3]);
  }
  return sum_of_columns(sums);
}

// log x for normal x > 0; NaN of NaN. The operations of natural_log() of base/ieee_math.h, and so its bits.
PENSTOCK_INLINE inline DoubleLanes natural_log(const DoubleLanes& x) {
  typedef int64_t LongLanes __attribute__((vector_size(64)));
  constexpr double kTerms[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                               1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  const LongLanes bits = reinterpret_cast<LongLanes>(x);
  const DoubleLanes half = reinterpret_cast<DoubleLanes>((bits & 0x000fffffffffffff) | 0x3fe0000000000000);
  const LongLanes low = half < 0.70710678118654752440;  // -1 where true
  const DoubleLanes m = low != 0 ? 2 * half : half;
  const DoubleLanes exponent = __builtin_convertvector((bits >> 52) - 1022 + low, DoubleLanes);
  const DoubleLanes s = (m - 1) / (m + 1);
  const DoubleLanes s2 = s * s;
  DoubleLanes series = DoubleLanes{} + 1.0 / 23;
  for (const double term : kTerms) series = series * s2 + term;
  const DoubleLanes log = exponent * 0.693147180559945309417232 + 2 * (s + s * (s2 * series));
  return x == x ? log : x;
}
PENSTOCK_INLINE inline Lanes natural_log(const Lanes& x) {
  const HalfLanes lower = __builtin_convertvector(natural_log(lower_doubles(x)), HalfLanes);
  const HalfLanes upper = __builtin_convertvector(natural_log(upper_doubles(x)), HalfLanes);
  return __builtin_shufflevector(lower, upper, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Logits to probabilities, in place; returns their log-sum-exp.
PENSTOCK_INLINE inline Lanes softmax_of_columns(float* columns, int64_t width) {
  Lanes most = broadcast(-INFINITY);
  for (int64_t i = 0; i < width; ++i) most = larger(load(columns + i * kLanes), most);
  for (int64_t i = 0; i < width; ++i) store(columns + i * kLanes, exp(load(columns + i * kLanes) - most));
  const Lanes sum = sum_of_values(columns, width);
  for (int64_t i = 0; i < width; ++i) store(columns + i * kLanes, load(columns + i * kLanes) / sum);
  return most + natural_log(sum);
}

// The values at the tokens' indices.
PENSTOCK_INLINE inline Lanes values_at(const float* columns, int64_t width, const IntLanes& index) {
  Lanes found{};
  for (int64_t i = 0; i < width; ++i) {
    found = index == static_cast<int32_t>(i) ? load(columns + i * kLanes) : found;
  }
  return found;
}

// index [choices, 16] = where the largest probabilities [width, 16] stand, by falling value; of equal ones the first.
// Those of a token are all numbers or none is one: then they count as equal. left [width, 16] is written.
PENSTOCK_INLINE inline void choose_largest(const float* probabilities, int64_t width, int64_t choices,
                                           float* left, int32_t* index) {
  constexpr float kTaken = -1;  // no probability
  for (int64_t i = 0; i < width; ++i) {
    const Lanes value = load(probabilities + i * kLanes);
    store(left + i * kLanes, value == value ? value : Lanes{});
  }
  for (int64_t k = 0; k < choices; ++k) {
    Lanes most = broadcast(kTaken);
    IntLanes best{};
    for (int64_t i = 0; i < width; ++i) {
      const Lanes value = load(left + i * kLanes);
      best = value > most ? IntLanes{} + static_cast<int32_t>(i) : best;
      most = larger(value, most);
    }
    store(index + k * kLanes, best);
    for (int64_t i = 0; i < width; ++i) {
      const Lanes value = load(left + i * kLanes);
      store(left + i * kLanes, best == static_cast<int32_t>(i) ? broadcast(kTaken) : value);
    }
  }
}

}  // namespace penstock::kernels::cpu
