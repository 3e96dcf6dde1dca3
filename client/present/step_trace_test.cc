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

plan::JobSpec spec(const std::string& degrees = "") {
  return plan::parse_job_spec(
             "name: quickstart\n"
             "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2,\n"
             "        intermediate_size: 16, max_position_embeddings: 8}\n"
             "data: {source: /a.txt, sequence_length: 8}\n"
             "train: {steps: 4, global_batch_size: 2, microbatch_size: 1}\n"
             "parallel: {pipeline: 2" +
             degrees + "}\n")
      .value();
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
  const std::vector<TracedPipeline> pipelines = traced_pipelines(spec(), program(), trace()).value();
  EXPECT_EQ(trace_text(trace(), pipelines),
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
  const Json json = trace_json("quickstart", trace(), pipelines);
  EXPECT_EQ(json["job"], "quickstart");
  EXPECT_EQ(json["step"], 2);
  EXPECT_EQ(json["steps"], (Json::array({2, 100})));
  EXPECT_DOUBLE_EQ(json["measured_seconds"], 0.042);
  EXPECT_DOUBLE_EQ(json["ratio"], 1.05);
  EXPECT_EQ(json["handoffs"]["exposed"]["measured_exposed"], 2);
  EXPECT_DOUBLE_EQ(json["handoffs"]["exposed"]["exposed_seconds"], 0.031);
  EXPECT_EQ(json["ranks"].size(), 2u);
  EXPECT_FALSE(json.contains("pipelines") || json["ranks"][0].contains("pipeline"));
}

TEST(StepTrace, pipelines_side_by_side_are_compared_each_on_its_own) {
  // Ranks 0 and 2 are pipeline 0, ranks 1 and 3 pipeline 1, which takes 10 ms longer.
  const v1::TraceResponse one = trace();
  v1::TraceResponse two = one;
  two.clear_ranks();
  for (int rank = 0; rank < 4; ++rank) {
    v1::StepTrace& added = *two.add_ranks();
    added = one.ranks(rank / 2);
    added.set_rank(rank);
  }
  two.mutable_ranks(1)->mutable_works(1)->set_start_ns(43'000'000);
  two.mutable_ranks(1)->mutable_waits(0)->set_took_ns(32'000'000);
  const plan::JobSpec side_by_side = spec(", data: 2");
  const auto pipelines = traced_pipelines(side_by_side, program(), two);
  ASSERT_TRUE(pipelines.ok()) << pipelines.status();
  EXPECT_EQ(trace_text(two, *pipelines),
            "step 2: 52ms measured, 40ms simulated, 1.300 of it (the slowest of 2 pipelines)\n"
            "\n"
            "RANK   PIPELINE   BUSY    CPU   BUBBLE   SIMULATED\n"
            "   0          0   20ms   16ms    52.4%       50.0%\n"
            "   1          1   20ms   16ms    61.5%       50.0%\n"
            "   2          0   20ms   16ms    52.4%       50.0%\n"
            "   3          1   20ms   16ms    61.5%       50.0%\n"
            "\n"
            "HAND-OFFS   COUNT   HIDDEN   EXPOSED   WAITED\n"
            "local           0        -         -        -\n"
            "hidden          0        0         0       0s\n"
            "exposed         4        0         4     72ms\n");
  const Json json = trace_json("quickstart", two, *pipelines);
  EXPECT_EQ(json["ranks"][3]["rank"], 3);
  EXPECT_EQ(json["ranks"][3]["pipeline"], 1);
  EXPECT_DOUBLE_EQ(json["measured_seconds"], 0.052);
  EXPECT_DOUBLE_EQ(json["pipelines"][0]["measured_seconds"], 0.042);
  const std::string drawn = trace_perfetto(program(), *pipelines).value();
  EXPECT_THAT(drawn, HasSubstr("pipeline 1 measured"));
  EXPECT_THAT(message(traced_pipelines(side_by_side, program(), one).status()),
              HasSubstr("expected 4 ranks, as the job has, found 2"));
}

TEST(StepTrace, perfetto_has_both_rows_of_every_rank_in_milliseconds) {
  const Json drawn =
      Json::parse(trace_perfetto(program(), traced_pipelines(spec(), program(), trace()).value()).value());
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

TEST(StepTrace, program_with_more_works_than_a_trace_holds_is_told_with_its_rank) {
  const auto of = [](const plan::ScheduleRequest& request) {
    return why_not_traced(*plan::generate(request));
  };
  EXPECT_EQ(of({.name = "1f1b", .ranks = 2, .microbatches = 32'768}), "");
  EXPECT_EQ(of({.name = "1f1b", .ranks = 2, .microbatches = 32'769}),
            "rank 0 of a pipeline has 65538 works in a step, and a trace holds 65536");
  // Halves of backwards, and pairs, count each.
  EXPECT_EQ(of({.name = "zb-h1", .ranks = 2, .microbatches = 21'846}),
            "rank 0 of a pipeline has 65538 works in a step, and a trace holds 65536");
  EXPECT_THAT(of({.name = "dualpipe", .ranks = 2, .microbatches = 32'770}), HasSubstr("65541 works"));  // one backward in halves
}

}  // namespace
}  // namespace penstock::client
