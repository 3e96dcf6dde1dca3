// What the tests of the operations share: random tensors, a comparison with a float64 reference, and
// gradients by central differences of that reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops/cpu/matrix_product.h"
#include "kernels/ops/operators.h"

namespace penstock::kernels::testing {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline TensorView view(Floats& values, std::initializer_list<int64_t> shape) {
  const TensorView result(values.data(), DataType::Float32, shape);
  PENSTOCK_CHECK_EQ(result.elements(), static_cast<int64_t>(values.size()));
  return result;
}
inline TensorView view(std::vector<int32_t>& values) {
  return TensorView(values.data(), DataType::Int32, {static_cast<int64_t>(values.size())});
}

// Values in bfloat16. What it is made of is rounded first, so that a reference can start from the same values.
class Halves {
 public:
  explicit Halves(Floats& values) {
    for (float& each : values) {
      each = rounded_to_bfloat16(each);
      values_.push_back(to_bfloat16(each));
    }
  }
  explicit Halves(int64_t count) : values_(count, to_bfloat16(NAN)) {}

  TensorView view(std::initializer_list<int64_t> shape) {
    const TensorView result(values_.data(), DataType::BFloat16, shape);
    PENSTOCK_CHECK_EQ(result.elements(), static_cast<int64_t>(values_.size()));
    return result;
  }
  Floats widened() const {
    Floats result;
    for (BFloat16 each : values_) result.push_back(to_float(each));
    return result;
  }

 private:
  std::vector<BFloat16> values_;
};

// A rounding to bfloat16 moves a value by at most this share of it.
constexpr double kHalfUlp = 1.0 / 256;

inline Doubles widen(const Floats& values) {
  return Doubles(values.begin(), values.end());
}

// Random inputs; the same seed gives the same values.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  Floats normal(int64_t count, float scale = 1, float mean = 0) {
    std::normal_distribution<float> distribution(mean, scale);
    Floats values(count);
    for (float& each : values) each = distribution(engine_);
    return values;
  }
  std::vector<int32_t> below(int32_t bound, int64_t count) {
    std::uniform_int_distribution<int32_t> distribution(0, bound - 1);
    std::vector<int32_t> values(count);
    for (int32_t& each : values) each = distribution(engine_);
    return values;
  }
  int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }

 private:
  std::mt19937 engine_;
};

// The operators of one rank with their compute threads.
struct Rig {
  explicit Rig(int thread_count = 2) : threads(thread_count), ops(make_cpu_operators(threads)) {}
  Operators* operator->() { return ops.get(); }

  ComputeThreads threads;
  std::unique_ptr<Operators> ops;
};

// Every element within `tolerance` of the largest reference value.
inline void expect_close(const Floats& actual, const Doubles& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (double each : expected) largest = std::max(largest, std::abs(each));
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance * largest)
        << what << "[" << i << "]: " << actual[i] << ", reference " << expected[i] << ", largest " << largest;
  }
}

// after = before + added: bit for bit where the kernels form a product before they add it, closely elsewhere.
inline void expect_added(const Floats& before, const Floats& added, const Floats& after) {
  const double tolerance = cpu::has_row_invariant_products() ? 0 : 1e-4;
  for (size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], before[i] + added[i], tolerance) << i;
}

inline double dot(const Doubles& a, const Floats& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

// The gradient of `loss` by central differences at up to 24 elements of `input`, against what the operation
// computed. `loss` reads `input`, which is left as it was.
inline void expect_gradient(const std::function<double()>& loss, Doubles& input, const Floats& gradient,
                            const std::string& what, double tolerance = 2e-5) {
  ASSERT_EQ(input.size(), gradient.size()) << what;
  constexpr double kStep = 1e-5;
  constexpr size_t kSamples = 24;
  std::mt19937 engine(7);
  std::vector<size_t> sampled;
  if (input.size() <= kSamples) {
    for (size_t i = 0; i < input.size(); ++i) sampled.push_back(i);
  } else {
    for (size_t i = 0; i < kSamples; ++i)
      sampled.push_back(std::uniform_int_distribution<size_t>(0, input.size() - 1)(engine));
  }
  Doubles numeric;
  for (size_t i : sampled) {
    const double value = input[i];
    input[i] = value + kStep;
    const double above = loss();
    input[i] = value - kStep;
    const double below = loss();
    input[i] = value;
    numeric.push_back((above - below) / (2 * kStep));
  }
  double largest = 1e-6;
  for (double each : numeric) largest = std::max(largest, std::abs(each));
  for (size_t s = 0; s < sampled.size(); ++s) {
    ASSERT_LE(std::abs(gradient[sampled[s]] - numeric[s]), tolerance * largest)
        << what << "[" << sampled[s] << "]: " << gradient[sampled[s]] << ", by differences " << numeric[s];
  }
}

// Runs `results` with 1, 2 and 3 compute threads, twice each; all must have the same bits.
inline void expect_same_bits_for_any_thread_count(
    const std::function<std::vector<Floats>(Operators&)>& results) {
  Rig one(1);
  const std::vector<Floats> expected = results(*one.ops);
  for (int threads : {1, 2, 3}) {
    Rig rig(threads);
    for (int repetition = 0; repetition < 2; ++repetition) {
      const std::vector<Floats> actual = results(*rig.ops);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        ASSERT_EQ(actual[i].size(), expected[i].size());
        EXPECT_EQ(std::memcmp(actual[i].data(), expected[i].data(), actual[i].size() * sizeof(float)), 0)
            << "result " << i << " differs with " << threads << " threads";
      }
    }
  }
}

}  // namespace penstock::kernels::testing
