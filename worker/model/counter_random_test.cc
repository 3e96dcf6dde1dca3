#include "worker/model/counter_random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/philox.h"
#include "worker/model/parameters.h"

namespace penstock::worker {
namespace {

TEST(CounterRandom, philox_gives_the_published_numbers) {
  // Known answers of the generator's authors for key 0 and counter 0.
  EXPECT_EQ(philox(0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(CounterRandom, a_dropout_mask_has_a_key_of_its_own_at_every_place_of_a_run) {
  std::set<uint64_t> keys;
  int places = 0;
  for (const int64_t seed : {0, 1, 2}) {
    for (const int64_t step : {0, 1, 1000}) {
      for (const int64_t microbatch : {0, 1, 7}) {
        for (const int64_t layer : {0, 1, 1000}) {
          for (const auto branch : {DropoutPlace::Branch::Attention, DropoutPlace::Branch::FeedForward}) {
            keys.insert(dropout_key({seed, step, microbatch, layer, branch}));
            ++places;
          }
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), static_cast<size_t>(places));
}

TEST(CounterRandom, quantiles_agree_with_the_normal_distribution) {
  // Values of the inverse of the cumulative distribution at (bits + 1/2) / 2^32.
  struct Known {
    uint32_t bits;
    double quantile;
  };
  const std::vector<Known> known = {{0u, -6.337957754553789},
                                    {1u, -6.166429517819749},
                                    {1000u, -5.039851125968711},
                                    {1048576u, -3.4871039765916896},
                                    {322122547u, -1.4395314704450153},
                                    {322122548u, -1.4395314688002132},
                                    {1073741824u, -0.6744897498297384},
                                    {2147483647u, -2.9180993729166234e-10},
                                    {2147483648u, 2.9180993729166234e-10},
                                    {3000000000u, 0.5200680618488762},
                                    {3972844748u, 1.4395314704450153},
                                    {4294967294u, 6.166429517819749},
                                    {4294967295u, 6.337957754553789}};
  for (const auto& [bits, quantile] : known) {
    EXPECT_NEAR(normal_quantile(bits), quantile, 4e-15 * std::abs(quantile)) << bits;
  }
}

TEST(CounterRandom, quantiles_are_odd_and_rise) {
  double last = -7;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4'000'037) {
    const auto at = static_cast<uint32_t>(bits);
    EXPECT_GT(normal_quantile(at), last);
    last = normal_quantile(at);
    EXPECT_NEAR(normal_quantile(~at), -last, 1e-14 * std::abs(last));
  }
}

TEST(CounterRandom, filled_values_have_the_moments_of_a_normal_distribution) {
  std::vector<float> values(200'000);
  fill_normal(1, "model.layers.0.mlp.up_proj.weight", 0.02, values);
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double z = values[i] / 0.02;
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
    neighbours += i == 0 ? 0 : z * values[i - 1] / 0.02;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.02);
  EXPECT_NEAR(fourths / count, 3, 0.15);
  EXPECT_NEAR(neighbours / count, 0, 0.01);
}

TEST(CounterRandom, an_element_does_not_depend_on_how_many_are_asked_for) {
  std::vector<float> seven(7), thousand(1000);
  fill_normal(3, "lm_head.weight", 1, seven);
  fill_normal(3, "lm_head.weight", 1, thousand);
  for (size_t i = 0; i < seven.size(); ++i) EXPECT_EQ(seven[i], thousand[i]);
}

TEST(CounterRandom, seed_and_name_each_change_every_value) {
  std::vector<float> base(64), other_seed(64), other_name(64);
  fill_normal(1, "a", 1, base);
  fill_normal(2, "a", 1, other_seed);
  fill_normal(1, "b", 1, other_name);
  for (size_t i = 0; i < base.size(); ++i) {
    EXPECT_NE(base[i], other_seed[i]);
    EXPECT_NE(base[i], other_name[i]);
  }
}

}  // namespace
}  // namespace penstock::worker
