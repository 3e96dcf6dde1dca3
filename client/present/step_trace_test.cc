#include "client/present/step_trace.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "plan/schedule/families.h"

namespace penstock::client {
namespace {

using ::testing::HasSubstr;

void add_work(v1::StepTrace& rank, int stage, int kind, int microbatch, int64_t start_ns) {
  v1::TracedWork& work = *rank.add_works();
  work.set_stage(stage);
  work.set_kind(kind);
  work.set_microbatch(microbatch);
  work.set_start_ns(start_ns);
  work.set_took_ns(10'000'000);
  work.set_cpu_ns(8'000'000);
}

void add_wait(v1::StepTrace& rank, int stage, bool gradient, int64_t start_ns, int64_t took_ns) {
  v1::TracedWait& wait = *rank.add_waits();
  wait.set_stage(stage);
  wait.set_gradient(gradient);
  wait.set_start_ns(start_ns);
  wait.set_took_ns(took_ns);
}

// One microbatch through two ranks; rank 1 began 3 ms after rank 0 on the clock that they share.
v1::TraceResponse trace() {
  v1::TraceResponse response;
  response.set_step(2);
  response.add_steps(2);
  response.add_steps(100);
  v1::StepTrace& first = *response.add_ranks();
  first.set_clock("boot");
  first.set_monotonic_ns(1'000'000'000);
  first.set_unix_ns(5'000'000'000);
  add_work(first, 0, 0, 0, 1'000'000);
  add_wait(first, 0, true, 11'000'000, 22'000'000);
  add_work(first, 0, 1, 0, 33'000'000);
  v1::StepTrace& second = *response.add_ranks();
  second.set_rank(1);
  second.set_clock("boot");
  second.set_monotonic_ns(1'003'000'000);
  second.set_unix_ns(5'500'000'000);
  add_wait(second, 1, false, 0, 9'000'000);
  add_work(second, 1, 0, 0, 9'000'000);
  add_work(second, 1, 1, 0, 19'000'000);
  return response;
}

plan::ComputeProgram program() {
  return plan::generate({.name = "1f1b", .ranks = 2, .microbatches = 1}).value();
}

TEST(StepTrace, ranks_of_one_host_are_lined_up_by_their_clock_and_others_by_the_time_of_day) {
  plan::MeasuredStep step = measured_step(trace()).value();
  ASSERT_EQ(step.ranks.size(), 2u);
  EXPECT_EQ(step.ranks[1].works[0].start_ns, 12'000'000);
  EXPECT_EQ(step.ranks[1].works[0].end_ns, 22'000'000);
  EXPECT_EQ(step.ranks[1].waits[0].passage.source, StageIndex(0));
  EXPECT_EQ(step.ranks[0].waits[0].passage.source, StageIndex(1));
  EXPECT_EQ(makespan_ns(step), 42'000'000);
  v1::TraceResponse far = trace();
  far.mutable_ranks(1)->set_clock("another boot");
  EXPECT_EQ(measured_step(far)->ranks[1].works[0].start_ns, 509'000'000);
}

TEST(StepTrace, text_and_json_say_the_same) {
  const plan::MeasuredStep step = measured_step(trace()).value();
  const plan::Comparison comparison = compare(program(), step).value();
  EXPECT_EQ(trace_text(trace(), comparison),
            "step 2: 42ms measured, 40ms simulated, 1.050 of it\n"
            "\n"
            "RANK   BUSY    CPU   BUBBLE   SIMULATED\n"
            "   0   20ms   16ms    52.4%       50.0%\n"
            "   1   20ms   16ms    52.4%       50.0%\n"
            "\n"
            "HAND-OFFS   COUNT   HIDDEN   EXPOSED   WAITED\n"
            "local           0        -         -        -\n"
            "hidden          0        0         0       0s\n"
            "exposed         2        0         2     31ms\n");
  const Json json = trace_json("quickstart", trace(), comparison);
  EXPECT_EQ(json["job"], "quickstart");
  EXPECT_EQ(json["step"], 2);
  EXPECT_EQ(json["steps"], (Json::array({2, 100})));
  EXPECT_DOUBLE_EQ(json["measured_seconds"], 0.042);
  EXPECT_DOUBLE_EQ(json["ratio"], 1.05);
  EXPECT_EQ(json["handoffs"]["exposed"]["measured_exposed"], 2);
  EXPECT_DOUBLE_EQ(json["handoffs"]["exposed"]["exposed_seconds"], 0.031);
  EXPECT_EQ(json["ranks"].size(), 2u);
}

TEST(StepTrace, perfetto_has_both_rows_of_every_rank_in_milliseconds) {
  const plan::MeasuredStep step = measured_step(trace()).value();
  const Json drawn = Json::parse(trace_perfetto(program(), step, compare(program(), step).value()).value());
  int slices = 0;
  for (const Json& event : drawn["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++slices;
    EXPECT_EQ(event["dur"], 10'000) << event;  // microseconds
  }
  EXPECT_EQ(slices, 8);
}

TEST(StepTrace, message_of_nobody_is_refused) {
  v1::TraceResponse bad = trace();
  bad.mutable_ranks(0)->mutable_works(0)->set_kind(7);
  EXPECT_THAT(message(measured_step(bad).status()), HasSubstr("a work of kind 7"));
  bad = trace();
  bad.mutable_ranks(1)->set_monotonic_ns(INT64_MAX);
  EXPECT_THAT(message(measured_step(bad).status()), HasSubstr("rank 1 began"));
  bad = trace();
  bad.mutable_ranks(1)->mutable_waits(0)->set_took_ns(-1);
  EXPECT_EQ(measured_step(bad).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock::client
