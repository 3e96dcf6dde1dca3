// v-auto against published values and the bound of Qi et al.
#include <gtest/gtest.h>

#include "plan/generation/testing/searched.h"

namespace penstock::plan {
namespace {

using testing::checked;
using testing::request_for;

constexpr StageCosts kUnit{1, 1, 1};

SearchReport search(int ranks, int microbatches, int64_t limit, const StageCosts& costs,
                    int64_t evaluations_max) {
  GenerationRequest request = request_for("v-auto", ranks, microbatches, costs, limit);
  request.search.evaluations_max = evaluations_max;
  return checked(request);
}

struct Row {
  int ranks;
  int microbatches;
  int64_t limit;  // in half-stages
  Ticks max_stage_span;
};

// V-Min, V-Half and V-ZB for F = I = W = 1, with their peaks as limits.
// clang-format off
constexpr Row kPublished[] = {
    {2, 6, 4, 39}, {2, 8, 4, 51}, {3, 9, 4, 59}, {3, 12, 4, 77}, {4, 8, 4, 59}, {4, 16, 4, 107},
    {5, 10, 6, 75}, {5, 15, 6, 105}, {6, 12, 6, 89}, {6, 18, 6, 125}, {6, 24, 6, 161}, {8, 16, 8, 123},
    {8, 32, 8, 219}, {12, 24, 10, 185}, {12, 36, 10, 257}, {16, 64, 12, 443}, {2, 4, 4, 25}, {2, 8, 4, 49},
    {3, 9, 4, 59}, {3, 12, 4, 77}, {4, 8, 6, 53}, {4, 12, 6, 77}, {5, 10, 6, 71}, {6, 12, 8, 83},
    {7, 28, 8, 185}, {8, 32, 10, 209}, {12, 24, 14, 173}, {12, 36, 14, 245}, {12, 48, 14, 317},
    {3, 6, 6, 36}, {3, 9, 6, 54}, {4, 8, 8, 48}, {4, 12, 8, 72}, {5, 15, 10, 90}, {6, 24, 12, 144},
    {7, 21, 14, 126}, {7, 28, 14, 168}, {8, 16, 16, 96}, {8, 24, 16, 144}, {12, 36, 24, 216},
    {12, 48, 24, 288}, {16, 48, 32, 288}, {16, 64, 32, 384},
};
// clang-format on

TEST(VShaped, published_spans_are_reached_or_beaten) {
  for (const Row& row : kPublished) {
    const SearchReport report = search(row.ranks, row.microbatches, row.limit, kUnit, 400);
    EXPECT_LE(report.max_stage_span, row.max_stage_span)
        << "P " << row.ranks << " m " << row.microbatches << " limit " << row.limit;
  }
}

class EveryLimit : public ::testing::TestWithParam<std::pair<int, int>> {};

// 6m + max(0, 6P - 3k - 1) is what the papers prove for limits k from 2 floor((P+4)/3) on; from 2P on
// nothing idles.
TEST_P(EveryLimit, is_within_one_slot_of_the_published_bound) {
  const auto [ranks, microbatches] = GetParam();
  for (int limit = 2 * ((ranks + 4) / 3); limit <= 2 * ranks; ++limit) {
    const SearchReport report = search(ranks, microbatches, limit, kUnit, 3'000);
    const Ticks published = 6 * microbatches + std::max(0, 6 * ranks - 3 * limit - 1);
    EXPECT_LE(report.max_stage_span, published + 1) << limit;
    EXPECT_GE(report.max_stage_span, published) << limit;
    EXPECT_GE(report.bound, published) << limit;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EveryLimit,
                         ::testing::Values(std::pair(3, 9), std::pair(4, 8), std::pair(4, 12),
                                           std::pair(6, 12), std::pair(7, 21), std::pair(8, 16),
                                           std::pair(16, 40)),
                         [](const auto& tested) {
                           return fmt::format("p{}_m{}", tested.param.first, tested.param.second);
                         });

TEST(VShaped, any_number_of_microbatches_works_within_any_limit_that_holds_one) {
  for (const int ranks : {1, 2, 3, 5})
    for (const int microbatches : {1, 2, 3, 7})
      for (const int limit : {2, 3, 2 * ranks}) search(ranks, microbatches, std::max(limit, 2), kUnit, 300);
}

// Table 8 of the Zero Bubble paper: ZB-V idles little with measured costs, which differ.
TEST(VShaped, measured_costs_at_the_memory_of_1f1b_idle_no_more_than_zb_v) {
  GenerationRequest request = request_for("v-auto", 16, 48, {14407, 14380, 9676}, 32);
  request.costs->latency = 1610;
  request.search.evaluations_max = 2'000;
  const auto span = static_cast<double>(checked(request).max_stage_span);
  EXPECT_LE((span - 48 * 2 * (14407 + 14380 + 9676)) / span, 0.06975);
}

// Heuristics for these costs idle 29 (V-Half) and 82 (V-Min).
TEST(VShaped, uneven_costs_idle_no_more_than_published_heuristics) {
  const Ticks work = 8 * 2 * (3 + 4 + 2);
  EXPECT_LE(search(4, 8, 6, {3, 4, 2}, 20'000).max_stage_span, work + 29);
  EXPECT_LE(search(4, 8, 4, {3, 4, 2}, 20'000).max_stage_span, work + 82);
}

}  // namespace
}  // namespace penstock::plan
