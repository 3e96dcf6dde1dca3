// Values of the same rows that went through products of other heights: with row-invariant kernels they have the same
// bits; on CPUs whose kernels lack that (the fingerprint says so) they are close. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/ops/operators.h"

namespace penstock::worker {

inline bool has_row_invariant_products() {
  return kernels::cpu_fingerprint().find("without row-invariant kernels") == std::string::npos;
}

// Of train.dtype.
inline std::vector<float> values_of(const std::vector<char>& bytes, const std::string& dtype) {
  if (dtype == "float32") {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::vector<float> values(bytes.size() / sizeof(uint16_t));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes.data() + i * sizeof(half), sizeof(half));
    values[i] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
  return values;
}

inline void expect_same_values(const std::vector<float>& found, const std::vector<float>& expected,
                               const std::string& dtype, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  if (has_row_invariant_products()) {
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0) << what;
    return;
  }
  const float tolerance = dtype == "float32" ? 1e-4f : 2e-2f;
  float largest = 0;
  for (const float each : expected) largest = std::max(largest, std::abs(each));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance * largest) << what << " [" << i << "]";
  }
}

inline void expect_same_values(const std::vector<char>& found, const std::vector<char>& expected,
                               const std::string& dtype, const std::string& what) {
  expect_same_values(values_of(found, dtype), values_of(expected, dtype), dtype, what);
}

}  // namespace penstock::worker
