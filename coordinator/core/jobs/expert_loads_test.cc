#include "coordinator/core/jobs/expert_loads.h"

#include <gmock/gmock.h>

#include <numeric>

namespace penstock::coordinator {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

struct Attempt {
  ExpertLoadRecorder recorder{};
  std::vector<LayerLoad> layers{};
  LoadHistory history{};
  int64_t step = 0;

  void add(std::vector<StepReport> reports) {
    for (StepReport& report : reports) report.step = step;
    ++step;
    recorder.add(reports, layers, history);
  }
};

StepReport report(int rank, std::vector<ExpertRows> rows, double forward = 0.25) {
  StepReport report;
  report.rank = RankIndex(rank);
  report.expert_rows = std::move(rows);
  StageTimes& stage = report.stages.emplace_back();
  stage.stage = StageIndex(0);
  stage.forward_seconds = forward;
  stage.backward_seconds = 2 * forward;
  return report;
}

ExpertRows rows_of(int layer, std::vector<int64_t> rows, int first = 0) {
  return {StageIndex(0), LayerIndex(layer), first, std::move(rows), 0};
}

TEST(ExpertLoads, ranks_that_share_experts_out_and_replicas_are_one_layer) {
  // Ranks 0 and 1 share four experts out; ranks 2 and 3 do the same for other tokens.
  Attempt attempt;
  attempt.add({report(0, {rows_of(1, {4, 0})}), report(1, {rows_of(1, {2, 2}, 2)}),
               report(2, {rows_of(1, {1, 1})}), report(3, {rows_of(1, {6, 0}, 2)})});
  ASSERT_THAT(attempt.layers, SizeIs(1));
  EXPECT_EQ(attempt.layers[0].layer, LayerIndex(1));
  EXPECT_EQ(attempt.layers[0].steps, 1);
  EXPECT_THAT(attempt.layers[0].rows, ElementsAre(5, 1, 8, 2));
  EXPECT_THAT(attempt.layers[0].ratio, ElementsAre(2.f));  // 8 of a mean of 4
  // Ranks have 4, 4, 2 and 6 rows: what is waited for is the busiest of them.
  EXPECT_THAT(attempt.history.stages[0].load, ElementsAre(1.5f));
}

TEST(ExpertLoads, of_ranks_with_all_experts_are_the_mean_of_the_layers) {
  Attempt attempt;
  attempt.add({report(0, {rows_of(1, {3, 1}), rows_of(2, {2, 2})}, 0.25),
               report(1, {rows_of(1, {3, 1}), rows_of(2, {2, 2})}, 0.5)});
  EXPECT_THAT(attempt.history.stages[0].load, ElementsAre(1.25f));
  EXPECT_THAT(attempt.history.stages[0].seconds, ElementsAre(1.5f));  // of the slower rank
}

TEST(ExpertLoads, rows_are_those_of_the_newest_steps) {
  Attempt attempt;
  const auto step = [&](int64_t rows) { attempt.add({report(0, {rows_of(0, {rows, rows})})}); };
  for (int i = 0; i < 1000; ++i) step(7);
  for (int i = 0; i < 128; ++i) step(1);
  EXPECT_GE(attempt.layers[0].steps, kLoadWindow);
  EXPECT_LT(attempt.layers[0].steps, 2 * kLoadWindow);
  EXPECT_THAT(attempt.layers[0].rows, Each(attempt.layers[0].steps));
}

TEST(ExpertLoads, history_spans_the_attempt_evenly_and_stays_bounded) {
  Attempt attempt;
  for (int64_t i = 0; i < 10'000; ++i) attempt.add({report(0, {rows_of(0, {10'000 + i, 10'000 - i})})});
  const std::vector<int64_t>& steps = attempt.history.steps;
  EXPECT_LT(steps.size(), kLoadHistory);
  EXPECT_GE(steps.size(), kLoadHistory / 2);
  EXPECT_EQ(steps[0], 0);
  const int64_t apart = steps[1] - steps[0];
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i], static_cast<int64_t>(i) * apart);
    EXPECT_FLOAT_EQ(attempt.layers[0].ratio[i],
                    static_cast<float>(1 + static_cast<double>(steps[i]) / 10'000));
  }
  EXPECT_GT(steps.back(), 10'000 - 1 - apart);
  EXPECT_THAT(attempt.history.stages[0].seconds, SizeIs(steps.size()));
  EXPECT_THAT(attempt.history.stages[0].load, SizeIs(steps.size()));
}

TEST(ExpertLoads, of_a_model_without_experts_are_none) {
  Attempt attempt;
  attempt.add({report(0, {})});
  EXPECT_THAT(attempt.layers, SizeIs(0));
  EXPECT_THAT(attempt.history.steps, SizeIs(0));
}

TEST(ExpertLoads, of_a_step_without_rows_have_no_ratio) {
  EXPECT_EQ(busiest_to_mean({0, 0}), 0);
  EXPECT_EQ(busiest_to_mean({2, 2}), 1);
  EXPECT_EQ(busiest_to_mean({0, 4}), 2);
}

}  // namespace
}  // namespace penstock::coordinator
