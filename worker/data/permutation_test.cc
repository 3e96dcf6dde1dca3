#include "worker/data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace penstock::worker {
namespace {

std::vector<int64_t> all_of(const Permutation::Key& key, int64_t size) {
  const Permutation permutation(key, size);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back(permutation.at(i));
  return order;
}

TEST(Permutation, every_size_gives_each_place_once) {
  // A sample that is drawn twice, or never, would be a silent fault of training.
  for (const uint64_t seed : {0u, 1u, 77u}) {
    for (int64_t size = 1; size <= 300; ++size) {
      std::vector<int64_t> order = all_of({.seed = seed, .epoch = seed / 2}, size);
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order[i], i) << "seed " << seed << " size " << size;
    }
  }
}

TEST(Permutation, a_large_size_stays_inside_and_does_not_repeat) {
  constexpr int64_t kSize = (int64_t{1} << 40) + 3;
  const Permutation permutation({.seed = 5}, kSize);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < 5000; ++i) values.push_back(permutation.at(i));
  EXPECT_LT(*std::max_element(values.begin(), values.end()), kSize);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(std::adjacent_find(values.begin(), values.end()), values.end());
}

TEST(Permutation, the_order_of_a_seed_never_changes) {
  // A run that is continued under a newer build must see the samples that it would have seen.
  EXPECT_EQ(all_of({.seed = 1}, 12), (std::vector<int64_t>{1, 11, 2, 7, 5, 0, 3, 4, 6, 9, 10, 8}));
  EXPECT_EQ(all_of({.seed = 2}, 12), (std::vector<int64_t>{5, 8, 9, 11, 2, 1, 4, 6, 7, 3, 10, 0}));
}

TEST(Permutation, another_seed_source_or_epoch_gives_another_order) {
  const std::vector<int64_t> one = all_of({.seed = 1}, 1000);
  for (const Permutation::Key& key :
       {Permutation::Key{.seed = 2}, Permutation::Key{.seed = 1, .source = 1},
        Permutation::Key{.seed = 1, .epoch = 1}, Permutation::Key{.seed = 1, .epoch = 1'000'000}}) {
    const std::vector<int64_t> two = all_of(key, 1000);
    int64_t same = 0;
    for (size_t i = 0; i < one.size(); ++i) same += one[i] == two[i];
    EXPECT_LT(same, 10);  // one is expected by chance
  }
}

TEST(Permutation, a_step_draws_from_all_over_the_text) {
  // Neighbours in the order must not be neighbours in the text, or a step would see one chapter only.
  constexpr int64_t kSize = 10'000;
  constexpr int kRegions = 10;
  const Permutation permutation({.seed = 3}, kSize);
  std::vector<double> count(kRegions);
  for (int64_t i = 0; i < 1000; ++i) count[permutation.at(i) * kRegions / kSize] += 1;
  for (const double regional : count) EXPECT_NEAR(regional, 100, 40);

  double correlation = 0;
  for (int64_t i = 0; i + 1 < kSize; ++i) {
    correlation += (permutation.at(i) / 5000.0 - 1) * (permutation.at(i + 1) / 5000.0 - 1);
  }
  EXPECT_LT(std::abs(correlation / kSize), 0.02);
}

}  // namespace
}  // namespace penstock::worker
