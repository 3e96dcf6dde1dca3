#include "coordinator/core/jobs/wait_parts.h"

#include <gmock/gmock.h>

namespace penstock::coordinator {
namespace {

using plan::ActionKind;
using plan::Flow;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TracedWork work(int stage, ActionKind kind, int64_t start, int64_t end) {
  return {{StageIndex(stage), kind, MicrobatchIndex(0)}, start, end, 0};
}
TracedWait wait(int stage, Flow flow, int64_t start, int64_t end) {
  return {StageIndex(stage), flow, MicrobatchIndex(0), start, end};
}
StepTrace rank(std::vector<TracedWork> works, std::vector<TracedWait> waits) {
  StepTrace trace;
  trace.clock = "boot";
  trace.works = std::move(works);
  trace.waits = std::move(waits);
  return trace;
}
std::vector<WaitParts> parts_of(const std::vector<StepTrace>& ranks, int pipelines = 1) {
  plan::ParallelSpec parallel;
  parallel.pipeline = static_cast<int>(ranks.size()) / pipelines;
  parallel.data = pipelines;
  return wait_parts(ranks, parallel, parallel.pipeline);
}

TEST(WaitParts, up_to_the_producers_end_is_dependency_and_the_rest_transfer) {
  // F(0) ends at 100; the second rank asks at 40 and has it at 130. B(1) ends at 300, its gradient is there before it is asked for.
  EXPECT_THAT(
      parts_of({rank({work(0, ActionKind::Forward, 0, 100)}, {wait(0, Flow::Gradient, 350, 351)}),
                rank({work(1, ActionKind::Forward, 130, 200), work(1, ActionKind::Backward, 200, 300)},
                     {wait(1, Flow::Activation, 40, 130)})}),
      ElementsAre(WaitParts{0, 1}, WaitParts{60, 30}));
}

TEST(WaitParts, gradients_of_a_split_backward_come_from_its_first_half) {
  EXPECT_THAT(
      parts_of({rank({}, {wait(0, Flow::Gradient, 0, 50)}),
                rank({work(1, ActionKind::InputGradient, 0, 20), work(1, ActionKind::WeightGradient, 20, 45)},
                     {})}),
      ElementsAre(WaitParts{20, 30}, WaitParts{}));
}

TEST(WaitParts, clocks_of_ranks_are_lined_up) {
  // The second rank's trace began 1,000 ns later, on the same clock; the third one's host has another clock, and the time of day says
  // 500 ns after the first.
  StepTrace first = rank({work(0, ActionKind::Forward, 0, 1'100)}, {});
  StepTrace second = rank({work(1, ActionKind::Forward, 130, 200)}, {wait(1, Flow::Activation, 0, 120)});
  StepTrace third = rank({}, {wait(2, Flow::Activation, 100, 720)});
  second.monotonic_ns = 1'000;
  third.clock = "another boot";
  third.monotonic_ns = 77;
  third.unix_ns = 500;
  EXPECT_THAT(parts_of({first, second, third}),
              ElementsAre(WaitParts{}, WaitParts{100, 20}, WaitParts{600, 20}));
}

TEST(WaitParts, pipelines_side_by_side_are_not_mixed_up) {
  // Ranks 0 and 1 are the first of two pipelines, 2 and 3 the second.
  const auto producer = [](int64_t end) { return rank({work(0, ActionKind::Forward, 0, end)}, {}); };
  const StepTrace consumer = rank({}, {wait(1, Flow::Activation, 0, 100)});
  EXPECT_THAT(parts_of({producer(10), producer(90), consumer, consumer}, 2),
              ElementsAre(WaitParts{}, WaitParts{}, WaitParts{10, 90}, WaitParts{90, 10}));
}

TEST(WaitParts, of_traces_that_no_executor_wrote_are_none) {
  EXPECT_THAT(parts_of({rank({}, {}), rank({}, {wait(1, Flow::Activation, 0, 9)})}),
              ElementsAre(WaitParts{}, WaitParts{}));
  EXPECT_THAT(parts_of({rank({}, {wait(0, Flow::Activation, 0, 9)})}), ElementsAre(WaitParts{}));
  StepTrace far = rank({}, {});
  far.clock = "another boot";
  far.unix_ns = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(parts_of({rank({}, {}), far}), IsEmpty());
}

}  // namespace
}  // namespace penstock::coordinator
