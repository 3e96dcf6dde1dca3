#include "plan/diagnosis/should_move.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "plan/calibration/layer_times.h"
#include "plan/diagnosis/statistics.h"
#include "plan/partition/partition.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

MoveQuestion worth_it() {
  return {.current_step_seconds = 10,
          .best_step_seconds = 8,
          .samples = 500,
          .steps_left = 1'000,
          .move_seconds = 60,
          .runs_that_agree = 2};
}

TEST(ShouldMoveTest, a_sure_gain_moves) {
  const MoveAnswer answer = should_move(worth_it());
  EXPECT_TRUE(answer.move);
  EXPECT_NEAR(answer.predicted_gain, 0.2, 1e-12);
  EXPECT_EQ(answer.because,
            "20.0 % faster, 16.0 % beyond the model's error; 1600 s saved, 60 s for the move");
}

TEST(ShouldMoveTest, everything_else_stays_and_says_why) {
  const auto stays = [](auto change, const char* why) {
    MoveQuestion question = worth_it();
    change(question);
    const MoveAnswer answer = should_move(question);
    EXPECT_FALSE(answer.move) << why;
    EXPECT_THAT(answer.because, HasSubstr(why));
  };
  stays([](MoveQuestion& q) { q.best_step_seconds = 9.7; }, "within the model's error");
  stays([](MoveQuestion& q) { q.best_step_seconds = 11; }, "within the model's error");
  stays([](MoveQuestion& q) { q.samples = 99; }, "99 samples of a stage; 100 are needed");
  stays([](MoveQuestion& q) { q.steps_left = 30; },
        "30 steps are left, which save 48 s; the move takes 60 s");
  stays([](MoveQuestion& q) { q.runs_that_agree = 1; }, "by 1 of 2 runs");
  stays([](MoveQuestion& q) { q.current_step_seconds = 0; }, "nothing was measured");
}

TEST(ShouldMoveTest, a_move_of_which_less_than_half_came_is_undone) {
  EXPECT_TRUE(
      should_keep({.before_step_seconds = 10, .after_step_seconds = 8.9, .predicted_gain = 0.2}).move);
  const MoveAnswer answer =
      should_keep({.before_step_seconds = 10, .after_step_seconds = 9.1, .predicted_gain = 0.2});
  EXPECT_FALSE(answer.move);
  EXPECT_EQ(answer.because, "9.0 % came of 20.0 % predicted, less than half");
}

// --- 200 re-plans of a 4B model on 8 ranks (34 items), measured with the noise of published traces.

constexpr int kRanks = 8;
constexpr int kItems = 34;

struct Truth {
  double embedding = 2.3655, block = 7.8929, head = 30.1955;  // ms

  double stage_ms(int begin, int end) const {
    return (begin == 0 ? embedding : 0) + (end == kItems ? head : 0) +
           block * ((end == kItems ? kItems - 1 : end) - (begin == 0 ? 1 : begin));
  }
};

// The median of 100 samples that vary by 2 %, every 200th of them eight times as long.
double measured_ms(double truth, std::mt19937& engine) {
  std::normal_distribution<double> noise(1, 0.02);
  std::vector<double> samples;
  for (int i = 0; i < 100; ++i) {
    const bool outlier = std::uniform_real_distribution<double>(0, 1)(engine) < 0.005;
    samples.push_back(truth * noise(engine) * (outlier ? 8 : 1));
  }
  return median(samples);
}

FittedTimes fitted(const std::vector<int>& boundaries, const Truth& truth, std::mt19937& engine) {
  std::vector<StageMeasurement> stages;
  for (size_t s = 0; s + 1 < boundaries.size(); ++s) {
    const int begin = boundaries[s], end = boundaries[s + 1];
    StageMeasurement stage;
    if (begin == 0) stage.layers["embedding"] = 1;
    if (end == kItems) stage.layers["head"] = 1;
    stage.layers["block"] = end - begin - (begin == 0 ? 1 : 0) - (end == kItems ? 1 : 0);
    const double ms = measured_ms(truth.stage_ms(begin, end), engine);
    stage.forward_ms = ms / 3;
    stage.backward_ms = 2 * ms / 3;
    stages.push_back(stage);
  }
  return *fit_layer_times(stages);
}

int changes_of_plan(uint32_t seed, std::vector<int> boundaries) {
  std::mt19937 engine(seed);
  const Truth truth;
  int changes = 0, agree = 0;
  for (int plan = 0; plan < 200; ++plan) {
    const FittedTimes times = fitted(boundaries, truth, engine);
    PartitionRequest request;
    request.ranks = kRanks;
    for (int item = 0; item < kItems; ++item) {
      const char* type = item == 0 ? "embedding" : item == kItems - 1 ? "head" : "block";
      LayerCost cost;
      cost.keep.time_ns = std::llround(predict_stage(times, {{type, 1}})->total_ms() * 1e6);
      request.layers.push_back(cost);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      request.in_flight.push_back(kRanks - rank);
      for (int item = boundaries[static_cast<size_t>(rank)]; item < boundaries[static_cast<size_t>(rank) + 1];
           ++item) {
        request.current_rank.push_back(rank);
      }
    }
    const Partition best = partition(request)->plan;
    MoveQuestion question = {
        .current_step_seconds = static_cast<double>(evaluate_partition(request, boundaries)->slowest_ns),
        .best_step_seconds = static_cast<double>(best.slowest_ns),
        .samples = 100,
        .steps_left = 1'000'000'000'000,  // a move that is as good as free
        .move_seconds = 1};
    agree = question.best_step_seconds < question.current_step_seconds ? agree + 1 : 0;
    question.runs_that_agree = agree;
    if (!should_move(question).move) continue;
    boundaries = best.boundaries;
    agree = 0;
    ++changes;
  }
  return changes;
}

TEST(ShouldMoveTest, two_hundred_plans_on_noise_change_the_split_at_most_once) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    // From the uniform split there is much to gain, once.
    EXPECT_EQ(changes_of_plan(seed, {0, 5, 9, 13, 17, 21, 25, 29, 34}), 1) << seed;
    // From the best one there is nothing.
    EXPECT_EQ(changes_of_plan(seed, {0, 5, 10, 15, 19, 24, 29, 33, 34}), 0) << seed;
  }
}

}  // namespace
}  // namespace penstock::plan
