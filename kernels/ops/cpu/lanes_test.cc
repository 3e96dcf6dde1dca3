#include "kernels/ops/cpu/lanes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace penstock::kernels::cpu {
namespace {

std::vector<float> sample() {
  std::mt19937 engine(3);
  std::uniform_real_distribution<float> distribution(-90, 90);
  std::vector<float> x = {0,      -0.0f, 1,     -1,     88,       89,        -86.9f,
                          -87.1f, 1000,  -1000, 1e-30f, INFINITY, -INFINITY, NAN};
  while (x.size() < 4099) x.push_back(distribution(engine));
  return x;
}

template <typename Runner>
std::vector<float> exponentials(const std::vector<float>& x, const Runner& run) {
  std::vector<float> y(x.size());
  run([&]() PENSTOCK_INLINE {
    for_each_lanes(static_cast<int64_t>(x.size()), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
      lanes.store(y.data() + i, exp(lanes.load(x.data() + i)));
    });
  });
  return y;
}

TEST(Lanes, exp_is_within_two_units_of_the_last_place) {
  const std::vector<float> x = sample();
  const std::vector<float> y = exponentials(x, [](const auto& body) { vectorised(body); });
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else if (x[i] < -87) {
      EXPECT_EQ(y[i], 0);
    } else {
      const double expected = std::exp(std::min(static_cast<double>(x[i]), 88.0));
      EXPECT_NEAR(y[i], expected, expected * 2.0 / (1 << 23)) << x[i];
    }
  }
}

TEST(Lanes, every_instruction_set_gives_the_same_bits) {
  // This is what lets our own loops use the widest registers without being part of the fingerprint.
  const std::vector<float> x = sample();
  const auto run = [&](const auto& with) {
    std::vector<float> y = exponentials(x, with);
    y.resize(x.size() + 2);
    const std::vector<float> finite(x.begin() + 14, x.end());
    with([&]() PENSTOCK_INLINE {
      y[x.size()] = dot(finite.data(), finite.data(), static_cast<int64_t>(finite.size()));
      y[x.size() + 1] = largest(square_root(larger(load(finite.data()), load(finite.data() + 16)) + 90.0f));
    });
    return y;
  };
  const std::vector<float> baseline = run([](const auto& body) { body(); });
  const auto same = [&](const std::vector<float>& y) {
    return std::memcmp(y.data(), baseline.data(), y.size() * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(run([](const auto& body) { vectorised(body); })));
  if (instruction_set() >= InstructionSet::Avx2) {
    EXPECT_TRUE(same(run([](const auto& body) { run_with_avx2(body); })));
  }
}

std::vector<BFloat16> narrowed(const std::vector<float>& x) {
  std::vector<BFloat16> y(x.size());
  vectorised([&]() PENSTOCK_INLINE {
    for_each_lanes(static_cast<int64_t>(x.size()), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
      lanes.store(y.data() + i, lanes.load(x.data() + i));
    });
  });
  return y;
}

TEST(Lanes, bfloat16_is_rounded_as_one_value_is) {
  // Every upper half, with lower halves below, at and above the middle.
  std::vector<float> x;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  x.resize(x.size() - 5);  // the last lanes are part of a register
  const std::vector<BFloat16> y = narrowed(x);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], to_bfloat16(x[i])) << x[i];
}

TEST(Lanes, bfloat16_is_widened_and_missing_values_are_filled_in) {
  const std::vector<float> x = {1, -2, 0.5f, INFINITY, 3};
  const std::vector<BFloat16> narrow = narrowed(x);
  float wide[kLanes];
  store(wide, PartLanes{5}.load(narrow.data(), -INFINITY));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(wide[i], x[i]);
  for (size_t i = x.size(); i < kLanes; ++i) EXPECT_EQ(wide[i], -INFINITY);
}

}  // namespace
}  // namespace penstock::kernels::cpu
