#include "worker/telemetry/trace_recorder.h"

#include <gtest/gtest.h>

#include "plan/schedule/families.h"
#include "proto/codec/limits.h"

namespace penstock::worker {
namespace {

plan::JobSpec job(int64_t steps, int64_t every) {
  plan::JobSpec spec;
  spec.train.steps = steps;
  spec.trace.every = every;
  return spec;
}

std::string traced_of(const plan::JobSpec& spec, int updates = 1) {
  std::string steps;
  for (int64_t step = 0; step < spec.train.steps; step += updates) {
    if (is_traced(spec, StepIndex(step), updates)) steps += fmt::format("{} ", step);
  }
  return steps;
}

TEST(TracedSteps, are_a_warm_one_and_every_multiple) {
  EXPECT_EQ(traced_of(job(35, 10)), "2 10 20 30 ");
  EXPECT_EQ(traced_of(job(5, 100)), "2 ");
  EXPECT_EQ(traced_of(job(1, 100)), "0 ");
  EXPECT_EQ(traced_of(job(2, 1)), "1 ");
  EXPECT_EQ(traced_of(job(4, 1)), "1 2 3 ");
  EXPECT_EQ(traced_of(job(50, 0)), "");
}

TEST(TracedSteps, are_runs_of_a_program_that_spans_several) {
  EXPECT_EQ(traced_of(job(24, 10), 4), "0 8 20 ");  // with 2; with 10; with 20
}

TEST(TraceRecorder, keeps_one_step_at_a_time_in_the_order_of_its_events) {
  // What is left of an earlier step would be taken for this one's.
  FakeClock clock;
  const plan::RankProgram program =
      plan::lower(plan::generate({.name = "1f1b", .ranks = 2, .microbatches = 2}).value())->ranks[1];
  StepTrace trace;
  TraceRecorder recorder(program, trace);
  ASSERT_TRUE(recorder.has_room());
  EXPECT_FALSE(recorder.recording());
  const size_t room = trace.works.capacity();
  EXPECT_EQ(room, 4u);
  const plan::Work forward{StageIndex(1), plan::ActionKind::Forward, MicrobatchIndex(0)};
  for (int step : {2, 10}) {
    clock.advance(1s);
    recorder.begin(StepIndex(step), clock);
    ASSERT_TRUE(recorder.recording());
    const TimePoint begin = clock.now();
    plan::Instruction wait;
    wait.kind = plan::InstructionKind::WaitReceive;
    wait.work = forward;
    wait.flow = plan::Flow::Gradient;
    recorder.add_work(forward, begin, begin + 1ms, 1ms);
    recorder.forget_works();  // a warm-up that was undone
    recorder.add_wait(wait, begin + 1ms, begin + 3ms);
    recorder.add_work(forward, begin + 3ms, begin + 8ms, 4ms);
    recorder.end();
    EXPECT_FALSE(recorder.recording());
    EXPECT_EQ(trace.step, step);
    EXPECT_EQ(trace.monotonic_ns, begin.time_since_epoch().count());
    EXPECT_EQ(trace.unix_ns, clock.unix_milliseconds() * 1'000'000);
    ASSERT_EQ(trace.works.size(), 1u);
    EXPECT_EQ(trace.works[0].work, forward);
    EXPECT_EQ(trace.works[0].start_ns, 3'000'000);
    EXPECT_EQ(trace.works[0].end_ns, 8'000'000);
    EXPECT_EQ(trace.works[0].cpu_ns, 4'000'000);
    ASSERT_EQ(trace.waits.size(), 1u);
    EXPECT_EQ(trace.waits[0].flow, plan::Flow::Gradient);
    EXPECT_EQ(trace.waits[0].end_ns - trace.waits[0].start_ns, 2'000'000);
  }
  EXPECT_EQ(trace.works.capacity(), room) << "a traced step allocates";
  EXPECT_FALSE(trace.clock.empty());
}

TEST(TraceRecorder, program_with_more_works_than_a_message_holds_is_not_traced) {
  plan::RankProgram program;
  program.instructions.resize(codec::kMostTraced + 1);  // all Compute
  StepTrace trace;
  FakeClock clock;
  TraceRecorder recorder(program, trace);
  EXPECT_FALSE(recorder.has_room());
  EXPECT_EQ(
      recorder.why_not(),
      "no step is traced: the rank has 65537 works and 0 waits in a run of its program, and a trace holds 65536 of each");
  recorder.begin(StepIndex(2), clock);
  EXPECT_FALSE(recorder.recording());
}

}  // namespace
}  // namespace penstock::worker
