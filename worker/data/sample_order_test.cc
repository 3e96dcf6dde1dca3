#include "worker/data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

namespace penstock::worker {
namespace {

std::vector<int64_t> drawn(const SampleOrder& order, int64_t samples, int32_t source = 0) {
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < samples; ++i) {
    const SampleOrder::Sample sample = order.at(i);
    if (sample.source == source) windows.push_back(sample.window);
  }
  return windows;
}

TEST(SampleOrder, every_epoch_takes_every_window_once_in_an_order_of_its_own) {
  const SampleOrder order({.windows = {29}, .weights = {}, .seed = 1, .epochs = 3});
  EXPECT_EQ(order.samples(), 87);
  EXPECT_EQ(order.first_to_run_out(), 0);
  const std::vector<int64_t> all = drawn(order, 87);
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> one(all.begin() + 29 * epoch, all.begin() + 29 * (epoch + 1));
    orders.insert(one);
    std::sort(one.begin(), one.end());
    for (int64_t i = 0; i < 29; ++i) EXPECT_EQ(one[i], i);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(SampleOrder, unshuffled_windows_come_in_their_order_in_every_epoch) {
  const SampleOrder order({.windows = {3}, .weights = {}, .seed = 1, .epochs = 2, .shuffled = false});
  EXPECT_EQ(drawn(order, 6), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
}

TEST(SampleOrder, without_end_samples_go_on) {
  const SampleOrder order({.windows = {3, 1}, .weights = {1, 1}, .seed = 1, .epochs = 0});
  EXPECT_EQ(order.samples(), SampleOrder::kEndless);
  EXPECT_EQ(order.first_to_run_out(), -1);
  EXPECT_LT(order.at(int64_t{1} << 60).window, 3);
}

TEST(SampleOrder, shares_hold_after_any_number_of_samples) {
  // Each source is never a whole sample away from its share, the definition of taking turns evenly.
  const std::vector<double> weights = {0.5, 0.25, 0.25};
  const SampleOrder order({.windows = {1000, 1000, 1000}, .weights = weights, .seed = 7, .epochs = 0});
  std::vector<double> taken(3);
  for (int64_t i = 0; i < 5000; ++i) {
    taken[order.at(i).source] += 1;
    for (size_t s = 0; s < 3; ++s) {
      ASSERT_LE(std::abs(taken[s] - weights[s] * static_cast<double>(i + 1)), 1.0) << "sample " << i;
    }
  }
}

TEST(SampleOrder, weights_need_no_sum_of_one_and_may_differ_by_far) {
  const SampleOrder order({.windows = {10, 10, 10}, .weights = {7, 3, 1e-9}, .seed = 1, .epochs = 0});
  std::vector<int64_t> taken(3);
  for (int64_t i = 0; i < SampleOrder::kParts; ++i) ++taken[order.at(i).source];
  EXPECT_NEAR(static_cast<double>(taken[0]), 0.7 * SampleOrder::kParts, 1.5);
  EXPECT_NEAR(static_cast<double>(taken[1]), 0.3 * SampleOrder::kParts, 1.5);
  EXPECT_EQ(taken[2], 1);  // small is not never
}

TEST(SampleOrder, many_sources_of_tiny_weight_leave_the_rest_to_the_large_one) {
  std::vector<double> weights(1024, 1e-12);
  weights[500] = 1;
  const SampleOrder order(
      {.windows = std::vector<int64_t>(1024, 5), .weights = weights, .seed = 1, .epochs = 0});
  std::map<int32_t, int64_t> taken;
  for (int64_t i = 0; i < SampleOrder::kParts; ++i) ++taken[order.at(i).source];
  EXPECT_EQ(taken.size(), 1024u);
  EXPECT_EQ(taken[500], SampleOrder::kParts - 1023);
}

TEST(SampleOrder, each_source_of_a_mix_passes_over_its_own_windows) {
  const SampleOrder order({.windows = {20, 6}, .weights = {2, 1}, .seed = 3, .epochs = 2});
  const std::vector<int64_t> second = drawn(order, order.samples(), 1);
  for (size_t begin = 0; begin + 6 <= second.size(); begin += 6) {
    const std::set<int64_t> windows(second.begin() + begin, second.begin() + begin + 6);
    EXPECT_EQ(windows.size(), 6u);
  }
  // 12 of the second source are enough for about 36 samples.
  EXPECT_EQ(order.first_to_run_out(), 1);
  EXPECT_EQ(second.size(), 12u);
  EXPECT_NEAR(static_cast<double>(order.samples()), 36, 3);
}

TEST(SampleOrder, the_end_is_the_first_sample_that_no_source_could_give) {
  // Counted by hand: play the mix without end and stop where a source is asked for one more than it has.
  for (const int64_t epochs : {1, 2, 5}) {
    for (const auto& weights :
         {std::vector<double>{1, 1, 1}, std::vector<double>{5, 2, 1}, std::vector<double>{0.001, 0.9, 0.3}}) {
      const std::vector<int64_t> windows = {7, 30, 11};
      const SampleOrder endless({.windows = windows, .weights = weights, .seed = 1, .epochs = 0});
      std::vector<int64_t> taken(3);
      int64_t end = 0;
      while (true) {
        const int32_t source = endless.at(end).source;
        if (++taken[source] > windows[source] * epochs) break;
        ++end;
      }
      const SampleOrder order({.windows = windows, .weights = weights, .seed = 1, .epochs = epochs});
      EXPECT_EQ(order.samples(), end);
      EXPECT_EQ(order.first_to_run_out(), endless.at(end).source);
    }
  }
}

TEST(SampleOrder, sizes_that_would_overflow_have_no_end) {
  const SampleOrder order({.windows = {int64_t{1} << 50}, .weights = {}, .seed = 1, .epochs = 1'000'000});
  EXPECT_EQ(order.samples(), SampleOrder::kEndless);
}

TEST(SampleOrder, two_sources_of_one_size_are_not_in_step) {
  const SampleOrder order({.windows = {100, 100}, .weights = {1, 1}, .seed = 1, .epochs = 1});
  const std::vector<int64_t> first = drawn(order, 200, 0);
  const std::vector<int64_t> second = drawn(order, 200, 1);
  int same = 0;
  for (size_t i = 0; i < 100; ++i) same += first[i] == second[i];
  EXPECT_LT(same, 8);
}

TEST(SampleOrder, the_order_of_a_mix_never_changes) {
  // A run that is continued under a newer build must see the samples that it would have seen.
  const SampleOrder order({.windows = {9, 5}, .weights = {0.7, 0.3}, .seed = 1, .epochs = 0});
  std::vector<int64_t> told;
  for (int64_t i = 0; i < 24; ++i) told.push_back(order.at(i).source * 100 + order.at(i).window);
  // From a Python program of 30 lines with exact fractions.
  EXPECT_EQ(told, (std::vector<int64_t>{1, 104, 8,   2, 100, 7, 5,   0, 103, 3,   4, 102,
                                        6, 2,   101, 8, 4,   6, 103, 3, 0,   101, 1, 5}));
}

}  // namespace
}  // namespace penstock::worker
