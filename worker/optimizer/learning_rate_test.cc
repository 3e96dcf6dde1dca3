#include "worker/optimizer/learning_rate.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

plan::TrainSpec train(const std::string& schedule, int64_t steps, int64_t warmup_steps) {
  plan::TrainSpec train;
  train.steps = steps;
  train.optimizer.lr = 1e-3;
  train.lr_schedule = {schedule, warmup_steps, /*decay_steps=*/0, 0.1};
  return train;
}

TEST(LearningRate, warm_up_rises_from_the_first_share_to_the_full_rate) {
  const plan::TrainSpec spec = train("cosine", 100, 20);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(0), spec), 1e-3 / 20);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(9), spec), 1e-3 / 2);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(19), spec), 1e-3);
}

TEST(LearningRate, cosine_is_half_way_in_the_middle_and_ends_at_the_lowest_rate) {
  const plan::TrainSpec spec = train("cosine", 100, 20);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(59), spec), 1e-3 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(99), spec), 1e-4);
  for (int64_t step = 20; step < 100; ++step) {
    EXPECT_LT(learning_rate(StepIndex(step), spec), learning_rate(StepIndex(step - 1), spec));
  }
}

TEST(LearningRate, linear_falls_by_the_same_amount_each_step_and_ends_at_the_lowest_rate) {
  const plan::TrainSpec spec = train("linear", 100, 20);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(19), spec), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(59), spec), 1e-3 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(99), spec), 1e-4);
  for (int64_t step = 20; step < 100; ++step) {
    EXPECT_NEAR(learning_rate(StepIndex(step - 1), spec) - learning_rate(StepIndex(step), spec), 0.9e-3 / 80,
                1e-15);
  }
}

TEST(LearningRate, wsd_warms_up_stays_and_decays_over_the_last_steps_only) {
  plan::TrainSpec spec = train("wsd", 100, 10);
  spec.lr_schedule.decay_steps = 20;
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(4), spec), 5e-4);
  for (const int64_t step : {9, 10, 50, 79}) EXPECT_DOUBLE_EQ(learning_rate(StepIndex(step), spec), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(80), spec), 1e-3 - 0.9e-3 / 20);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(89), spec), 1e-3 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(99), spec), 1e-4);
}

TEST(LearningRate, wsd_without_a_stable_part_is_linear) {
  plan::TrainSpec spec = train("wsd", 100, 10);
  spec.lr_schedule.decay_steps = 90;
  for (int64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(learning_rate(StepIndex(step), spec), learning_rate(StepIndex(step), train("linear", 100, 10)));
  }
}

TEST(LearningRate, constant_stays_after_its_warm_up) {
  const plan::TrainSpec spec = train("constant", 100, 2);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(0), spec), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(2), spec), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(99), spec), 1e-3);
}

TEST(LearningRate, no_warm_up_starts_near_the_full_rate) {
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(0), train("constant", 10, 0)), 1e-3);
  EXPECT_NEAR(learning_rate(StepIndex(0), train("cosine", 1000, 0)), 1e-3, 1e-8);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(0), train("cosine", 1, 0)), 1e-4);
}

TEST(LearningRate, a_warm_up_longer_than_the_run_never_decays) {
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(9), train("cosine", 10, 20)), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(StepIndex(9), train("cosine", 10, 10)), 1e-3);
}

}  // namespace
}  // namespace penstock::worker
