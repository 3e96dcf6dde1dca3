// zb-auto against published and exhaustive values.
#include <gtest/gtest.h>

#include "plan/generation/testing/searched.h"

namespace penstock::plan {
namespace {

using testing::checked;
using testing::request_for;

struct Row {
  int ranks;
  int microbatches;
  StageCosts costs;
  int64_t limit;
  MemoryDeltas deltas;
  Ticks max_stage_span;
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << fmt::format("P {} m {} costs {},{},{} limit {}", row.ranks, row.microbatches, row.costs.forward,
                      row.costs.input_gradient, row.costs.weight_gradient, row.limit);
}

// What the heuristic of the Zero Bubble paper reaches with P and 2P M_B (ZB-1p, ZB-2p), in units of M_W.
// clang-format off
constexpr Row kPublished[] = {
    {2, 4, {1, 1, 1}, 4, {2, -1, -1}, 13}, {2, 4, {2, 2, 1}, 4, {2, -1, -1}, 23},
    {2, 4, {5, 6, 4}, 4, {2, -1, -1}, 67}, {2, 4, {3, 4, 2}, 4, {2, -1, -1}, 41},
    {4, 8, {2, 2, 1}, 8, {2, -1, -1}, 49}, {4, 8, {3, 4, 2}, 8, {2, -1, -1}, 87},
    {4, 12, {1, 1, 1}, 8, {2, -1, -1}, 39}, {4, 12, {2, 2, 1}, 8, {2, -1, -1}, 69},
    {4, 16, {1, 1, 1}, 8, {2, -1, -1}, 51}, {4, 16, {2, 2, 1}, 8, {2, -1, -1}, 89},
    {4, 16, {5, 6, 4}, 8, {2, -1, -1}, 261}, {8, 16, {5, 6, 4}, 16, {2, -1, -1}, 289},
    {8, 16, {3, 4, 2}, 16, {2, -1, -1}, 179}, {8, 24, {1, 1, 1}, 16, {2, -1, -1}, 79},
    {8, 24, {5, 6, 4}, 16, {2, -1, -1}, 409}, {8, 24, {3, 4, 2}, 16, {2, -1, -1}, 251},
    {8, 32, {1, 1, 1}, 16, {2, -1, -1}, 103}, {8, 32, {2, 2, 1}, 16, {2, -1, -1}, 181},
    {2, 4, {1, 1, 1}, 8, {2, -1, -1}, 12}, {4, 8, {1, 1, 1}, 16, {2, -1, -1}, 24},
    {4, 8, {2, 2, 1}, 16, {2, -1, -1}, 45}, {4, 8, {5, 6, 4}, 16, {2, -1, -1}, 126},
    {4, 16, {1, 1, 1}, 16, {2, -1, -1}, 48}, {4, 16, {2, 2, 1}, 16, {2, -1, -1}, 80},
    {4, 16, {5, 6, 4}, 16, {2, -1, -1}, 243}, {4, 16, {3, 4, 2}, 16, {2, -1, -1}, 146},
    {8, 16, {1, 1, 1}, 32, {2, -1, -1}, 48}, {8, 16, {5, 6, 4}, 32, {2, -1, -1}, 257},
    {8, 24, {1, 1, 1}, 32, {2, -1, -1}, 72}, {8, 24, {2, 2, 1}, 32, {2, -1, -1}, 125},
    {8, 32, {5, 6, 4}, 32, {2, -1, -1}, 484},
};

// The best of all programs, from a search of all of them.
constexpr Row kOptimal[] = {
    {2, 2, {2, 2, 1}, 2, {1, 0, -1}, 13}, {2, 2, {2, 2, 1}, 3, {1, 0, -1}, 13},
    {2, 2, {3, 4, 2}, 2, {1, 0, -1}, 23}, {2, 2, {3, 4, 2}, 3, {1, 0, -1}, 23},
    {2, 3, {3, 4, 2}, 2, {1, 0, -1}, 32}, {2, 3, {3, 4, 2}, 3, {1, 0, -1}, 30},
    {2, 4, {3, 4, 2}, 2, {1, 0, -1}, 41}, {2, 4, {3, 4, 2}, 3, {1, 0, -1}, 39},
    {3, 2, {1, 1, 1}, 3, {1, 0, -1}, 9}, {3, 2, {1, 1, 1}, 5, {1, 0, -1}, 9},
    {3, 2, {3, 4, 2}, 3, {1, 0, -1}, 30}, {3, 2, {3, 4, 2}, 5, {1, 0, -1}, 30},
    {3, 3, {2, 2, 1}, 3, {1, 0, -1}, 21}, {3, 3, {2, 2, 1}, 5, {1, 0, -1}, 21},
    {3, 3, {3, 4, 2}, 3, {1, 0, -1}, 37}, {3, 3, {3, 4, 2}, 5, {1, 0, -1}, 37},
    {4, 2, {3, 4, 2}, 4, {1, 0, -1}, 37}, {4, 2, {3, 4, 2}, 7, {1, 0, -1}, 37},
};

// Table 5 of the paper from the measured costs of its Table 9, in microseconds.
struct MeasuredRow {
  const char* model;
  int ranks;
  int microbatches;
  StageCosts costs;
  Ticks latency;
  double bubble_rate_1p;
  double bubble_rate_2p;
};
constexpr MeasuredRow kMeasured[] = {
    {"1_5B", 8, 24, {18522, 18086, 9337}, 601, 0.1585, 0.0433},
    {"1_5B", 8, 32, {18513, 18086, 9331}, 626, 0.1242, 0.0039},
    {"1_5B", 8, 64, {18546, 18097, 9321}, 762, 0.0674, 0.0026},
    {"6_2B", 8, 24, {29718, 29444, 19927}, 527, 0.1323, 0.0029},
    {"6_2B", 8, 32, {29802, 29428, 19530}, 577, 0.1045, 0.0022},
    {"6_2B", 8, 64, {29935, 29621, 19388}, 535, 0.0554, 0.0010},
    {"14_6B", 16, 48, {11347, 11248, 8132}, 377, 0.1397, 0.0066},
    {"14_6B", 16, 64, {11307, 11254, 8101}, 379, 0.1088, 0.0054},
    {"14_6B", 16, 128, {11325, 11308, 8109}, 378, 0.0576, 0.0028},
    {"28_3B", 32, 96, {10419, 10207, 7715}, 408, 0.1421, 0.0038},
    {"28_3B", 32, 128, {10408, 10204, 7703}, 408, 0.1106, 0.0029},
    {"28_3B", 32, 256, {10402, 10248, 7698}, 460, 0.0594, 0.0018},
};
// clang-format on

SearchReport search(const Row& row, int64_t evaluations_max) {
  GenerationRequest request =
      request_for("zb-auto", row.ranks, row.microbatches, row.costs, row.limit, row.deltas);
  request.search.evaluations_max = evaluations_max;
  return checked(request);
}

TEST(ZeroBubble, published_spans_are_reached_or_beaten) {
  for (const Row& row : kPublished) {
    SCOPED_TRACE(::testing::PrintToString(row));
    EXPECT_LE(search(row, 20'000).max_stage_span, row.max_stage_span);
  }
}

TEST(ZeroBubble, tiny_cases_are_optimal) {
  for (const Row& row : kOptimal) {
    SCOPED_TRACE(::testing::PrintToString(row));
    const SearchReport report = search(row, 20'000);
    EXPECT_EQ(report.max_stage_span, row.max_stage_span);
    EXPECT_LE(report.bound, row.max_stage_span);
  }
}

class Measured : public ::testing::TestWithParam<MeasuredRow> {};

double stage_bubble_rate(const MeasuredRow& row, int64_t limit) {
  GenerationRequest request =
      request_for("zb-auto", row.ranks, row.microbatches, row.costs, limit, MemoryDeltas{2, -1, -1});
  request.costs->latency = row.latency;
  request.search.evaluations_max = row.ranks == 8 ? 10'000 : 100;
  const auto span = static_cast<double>(checked(request).max_stage_span);
  const Ticks work = row.costs.forward + row.costs.input_gradient + row.costs.weight_gradient;
  return (span - static_cast<double>(work * row.microbatches)) / span;
}

TEST_P(Measured, bubble_rates_of_the_paper_are_reached_or_beaten_to_four_decimals) {
  const MeasuredRow& row = GetParam();
  constexpr double kRounding = 0.00005;
  EXPECT_LT(stage_bubble_rate(row, int64_t{2} * row.ranks), row.bubble_rate_1p + kRounding);
  EXPECT_LT(stage_bubble_rate(row, int64_t{4} * row.ranks), row.bubble_rate_2p + kRounding);
}

INSTANTIATE_TEST_SUITE_P(Table5, Measured, ::testing::ValuesIn(kMeasured), [](const auto& tested) {
  return fmt::format("{}_m{}", tested.param.model, tested.param.microbatches);
});

// With as much memory as 1F1B the best is ZB-H1: m (F+I+W) + (P-1)(F+I-W), and the bound proves it.
TEST(ZeroBubble, memory_of_1f1b_gives_zb_h1_and_is_proven_optimal) {
  for (const int ranks : {2, 3, 4, 8, 16}) {
    for (const StageCosts& costs : {StageCosts{1, 1, 1}, StageCosts{5, 6, 4}, StageCosts{3, 4, 2}}) {
      const int microbatches = 3 * ranks;
      const SearchReport report = search({ranks, microbatches, costs, ranks, {1, 0, -1}, 0}, 5'000);
      const Ticks work = costs.forward + costs.input_gradient + costs.weight_gradient;
      const Ticks idle = costs.forward + costs.input_gradient - costs.weight_gradient;
      EXPECT_EQ(report.max_stage_span, microbatches * work + (ranks - 1) * idle) << ranks;
      EXPECT_TRUE(report.optimal) << ranks;
    }
  }
}

// A slow stage sets the pace: nobody can be faster than its own work.
TEST(ZeroBubble, uneven_stages_wait_for_the_slowest) {
  GenerationRequest request = request_for("zb-auto", 4, 12, {10, 10, 10}, 8);
  request.costs->stages[2] = {20, 20, 20};
  const SearchReport report = checked(request);
  EXPECT_GE(report.bound, 12 * 60);
  EXPECT_LT(report.gap_percent, 3);
}

// Each stage has its own memory: a rank that holds four times as much per microbatch has four times the
// limit.
TEST(ZeroBubble, memory_is_counted_per_stage_and_limited_per_rank) {
  GenerationRequest even = request_for("zb-auto", 3, 8, {3, 4, 2}, 4);
  GenerationRequest uneven = even;
  uneven.memory.deltas = {{1, 0, -1}, {4, 0, -4}, {1, 0, -1}};
  uneven.memory.limits = {4, 16, 4};
  EXPECT_EQ(checked(uneven).max_stage_span, checked(even).max_stage_span);
  uneven.memory.limits = {4, 4, 4};
  EXPECT_GT(checked(uneven).max_stage_span, checked(even).max_stage_span);
}

// An input gradient may need memory of its own.
TEST(ZeroBubble, input_gradients_that_take_memory_find_it) {
  for (const int64_t limit : {3, 4, 5, 8}) {
    const SearchReport report = search({4, 9, {3, 4, 2}, limit, {2, 1, -3}, 0}, 2'000);
    EXPECT_GT(report.max_stage_span, 0) << limit;
  }
}

}  // namespace
}  // namespace penstock::plan
