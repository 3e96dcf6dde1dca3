#include "worker/telemetry/step_recorder.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

using plan::ActionKind;

TEST(Median, is_the_middle_or_the_mean_of_the_middle_two) {
  std::vector<double> odd = {5, 1, 3};
  std::vector<double> even = {8, 1, 2, 4};
  EXPECT_EQ(median(odd), 3);
  EXPECT_EQ(median(even), 3);
  EXPECT_EQ(median({}), 0);
}

TEST(StepRecorder, step_is_told_by_stage_and_kind_and_the_next_starts_afresh) {
  // A sample that leaked into the next step would hide a stage that became slow.
  FakeClock clock;
  const std::vector<StageIndex> stages = {StageIndex(1), StageIndex(5)};
  StepRecorder recorder(stages, 4);
  recorder.begin(clock.now(), 1s);
  recorder.add_action(StageIndex(1), ActionKind::Forward, 10ms);
  recorder.add_action(StageIndex(1), ActionKind::Forward, 30ms);
  recorder.add_action(StageIndex(1), ActionKind::Forward, 20ms);
  recorder.add_action(StageIndex(5), ActionKind::Backward, 40ms);
  recorder.add_wait(5ms);
  recorder.add_wait(7ms);
  recorder.add_optimizer(3ms);
  clock.advance(200ms);
  StepReport report;
  recorder.end(clock.now(), 1s + 90ms, report);
  EXPECT_DOUBLE_EQ(report.wall_seconds, 0.2);
  EXPECT_DOUBLE_EQ(report.cpu_seconds, 0.09);
  EXPECT_DOUBLE_EQ(report.wait_seconds, 0.012);
  EXPECT_DOUBLE_EQ(report.optimizer_seconds, 0.003);
  ASSERT_EQ(report.stages.size(), 2u);
  EXPECT_EQ(report.stages[0].stage, StageIndex(1));
  EXPECT_DOUBLE_EQ(report.stages[0].forward_seconds, 0.02);
  EXPECT_EQ(report.stages[0].backward_seconds, 0);
  EXPECT_DOUBLE_EQ(report.stages[1].backward_seconds, 0.04);

  recorder.add_action(StageIndex(1), ActionKind::Forward, 50ms);
  clock.advance(100ms);
  recorder.end(clock.now(), 1s + 100ms, report);
  EXPECT_DOUBLE_EQ(report.wall_seconds, 0.1);
  EXPECT_NEAR(report.cpu_seconds, 0.01, 1e-12);
  EXPECT_EQ(report.wait_seconds, 0);
  EXPECT_EQ(report.optimizer_seconds, 0);
  EXPECT_DOUBLE_EQ(report.stages[0].forward_seconds, 0.05);
  EXPECT_EQ(report.stages[1].backward_seconds, 0);
}

TEST(StepRecorderDeathTest, more_actions_than_the_program_has_stop_the_process) {
  StepRecorder recorder(std::vector{StageIndex(0)}, 1);
  recorder.add_action(StageIndex(0), ActionKind::Forward, 1ms);
  EXPECT_DEATH(recorder.add_action(StageIndex(0), ActionKind::Forward, 1ms), "check failed");
  EXPECT_DEATH(recorder.add_action(StageIndex(3), ActionKind::Forward, 1ms), "stage 3 is not of this rank");
}

TEST(StepRecorder, actions_that_were_undone_leave_room_for_those_that_run_again) {
  const std::vector<StageIndex> stages = {StageIndex(0)};
  StepRecorder recorder(stages, 1);
  recorder.begin(TimePoint{}, {});
  recorder.add_action(StageIndex(0), plan::ActionKind::Forward, 5s);
  recorder.add_wait(1s);
  recorder.forget_actions();
  recorder.add_action(StageIndex(0), plan::ActionKind::Forward, 2s);
  StepReport report;
  recorder.end(TimePoint{} + 9s, {}, report);
  EXPECT_EQ(report.stages.at(0).forward_seconds, 2);
  EXPECT_EQ(report.wait_seconds, 1);
  EXPECT_EQ(report.wall_seconds, 9);
}

}  // namespace
}  // namespace penstock::worker
