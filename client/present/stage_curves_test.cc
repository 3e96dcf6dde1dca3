#include "client/present/stage_curves.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "client/present/measured_runs.h"
#include "client/present/proposal.h"

namespace penstock::client {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kJob =
    "name: tiny\n"
    "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
    "        intermediate_size: 16, max_position_embeddings: 8}\n"
    "data: {source: /data/text.txt, sequence_length: 8}\n"
    "train: {steps: 100, global_batch_size: 4, microbatch_size: 1, dtype: float32}\n"
    "parallel: {pipeline: 2, split: {layers: [2, 2]}}\n";

void add_series(v1::AttemptMeasurements& attempt, int rank, int stage, v1::MeasuredKind kind, float seconds) {
  v1::MeasuredSeries& series = *attempt.add_series();
  series.set_rank(rank);
  series.set_stage(stage);
  series.set_kind(kind);
  series.set_median_seconds(seconds);
  for (int step = 0; step < 40; ++step) series.add_samples(seconds);
}

void add_stage(v1::AttemptMeasurements& attempt, int stage, const std::vector<std::string>& items,
               float forward, float backward) {
  v1::StageItems& added = *attempt.add_stages();
  for (const std::string& item : items) added.add_items(item);
  add_series(attempt, stage, stage, v1::MEASURED_KIND_FORWARD, forward);
  add_series(attempt, stage, stage, v1::MEASURED_KIND_BACKWARD, backward);
  add_series(attempt, stage, -1, v1::MEASURED_KIND_STEP, 1);
}

// Two blocks of 30 ms a stage, and a head of 75 ms on top of the last one's.
v1::MeasurementsResponse response() {
  v1::MeasurementsResponse measured;
  measured.set_spec_yaml(kJob);
  v1::AttemptMeasurements& attempt = *measured.add_attempts();
  attempt.set_attempt(1);
  attempt.set_steps(40);
  add_stage(attempt, 0, {"embedding", "0", "1"}, 0.020f, 0.040f);
  add_stage(attempt, 1, {"2", "3", "head"}, 0.045f, 0.090f);
  for (int rank = 0; rank < 2; ++rank) {
    v1::StageStatus& stage = *measured.add_stages();
    stage.set_rank(rank);
    stage.set_memory_peak_bytes(1024 * (rank + 1));
    stage.set_memory_predicted_bytes(1024);
  }
  return measured;
}

StageCurves curves_of(const v1::MeasurementsResponse& measured) {
  const plan::JobSpec job = *plan::parse_job_spec(measured.spec_yaml());
  const StatusOr<MeasuredRuns> runs = measured_runs(measured);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return stage_curves("tiny", job, runs->response, runs->runs);
}

TEST(StageCurves, stage_that_sticks_out_is_seen_against_the_mean) {
  const StageCurves curves = curves_of(response());
  ASSERT_EQ(curves.stages.size(), 2u);
  EXPECT_NEAR(curves.stages[1].measured_ms, 135, 1e-3);
  EXPECT_NEAR(curves.stages[1].planned_ms, 97.5, 1e-3);
  const std::string text = curves_text(curves);
  EXPECT_THAT(text, HasSubstr("embedding 0-1"));
  EXPECT_THAT(text, HasSubstr("[#####################|########]"));  // all of it; the mean at 0.72
  EXPECT_THAT(text, HasSubstr("[#############        |        ]"));
  EXPECT_THAT(text, HasSubstr("the slowest stage, 1, takes 1.38 times the mean of 97.5ms"));
  EXPECT_THAT(text, HasSubstr("2.00KiB"));
  const Json json = curves_json(curves);
  EXPECT_EQ(json["stages"][1]["ranks"][0], 1);
  EXPECT_EQ(json["planned"], "mean");
  EXPECT_EQ(json["ranks"][1]["peak_bytes"], 2048);
  EXPECT_THAT(curves_svg(curves), HasSubstr("stage 1"));
}

TEST(StageCurves, rows_of_experts_waits_in_two_and_earlier_attempts_are_told_where_there_are_any) {
  v1::MeasurementsResponse measured = response();
  EXPECT_EQ(curves_text(curves_of(measured)).find("EXPERTS"), std::string::npos);
  EXPECT_EQ(curves_text(curves_of(measured)).find("ATTEMPT"), std::string::npos);
  *measured.add_attempts() = measured.attempts(0);
  v1::AttemptMeasurements& newest = *measured.mutable_attempts(1);
  newest.set_attempt(2);
  v1::LayerLoad& load = *newest.add_expert_loads();
  load.set_layer(2);
  load.set_stage(1);
  load.set_steps(4);
  for (const int64_t rows : {400, 800, 1200, 1600}) load.add_rows(rows);
  add_series(newest, 1, -1, v1::MEASURED_KIND_WAIT, 0.5f);
  add_series(newest, 1, -1, v1::MEASURED_KIND_WAIT_DEPENDENCY, 0.25f);
  add_series(newest, 1, -1, v1::MEASURED_KIND_WAIT_TRANSFER, 0.0625f);
  v1::MemoryUse& use = *newest.add_memory()->add_kinds();
  use.set_kind("parameters");
  use.set_peak_bytes(4096);
  const StageCurves curves = curves_of(measured);
  const std::string text = curves_text(curves);
  EXPECT_THAT(text, HasSubstr("    2       1         4         100    250   400       1.60\n"));
  EXPECT_THAT(text, HasSubstr("   1   500ms        250ms     62.5ms\n"));
  EXPECT_THAT(text, HasSubstr("4.00KiB\n"));
  const Json json = curves_json(curves);
  EXPECT_EQ(json["experts"][0]["max_over_mean"], 1.6);
  EXPECT_EQ(json["waits"][0]["transfer_ms"], 62.5);
  EXPECT_EQ(json["attempts"][1]["largest_rank_bytes"], 4096);
  EXPECT_EQ(json["attempts"][0]["attempt"], 1);
  EXPECT_THAT(curves_svg(curves), HasSubstr("layer 2"));
}

TEST(MeasuredRuns, sampled_layers_are_told_by_stage_and_type) {
  v1::MeasurementsResponse measured = response();
  v1::AttemptMeasurements& attempt = *measured.mutable_attempts(0);
  add_series(attempt, 1, 1, v1::MEASURED_KIND_LAYER_FORWARD, 0.25f);
  attempt.mutable_series()->rbegin()->set_layer(v1::LAYER_TYPE_HEAD);
  add_series(attempt, 1, 1, v1::MEASURED_KIND_LAYER_BACKWARD, 0.5f);
  attempt.mutable_series()->rbegin()->set_layer(v1::LAYER_TYPE_HEAD);
  const auto runs = measured_runs(measured);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->runs.front().layers.size(), 1u);
  EXPECT_EQ(runs->runs.front().layers[0].stage, 1);
  EXPECT_EQ(runs->runs.front().layers[0].type, plan::LayerType::Head);
  EXPECT_EQ(runs->runs.front().layers[0].forward_seconds, 0.25);
  EXPECT_EQ(runs->runs.front().layers[0].backward_seconds, 0.5);
  const auto forwards = [](const std::vector<plan::StageSamples>& stage) {
    return stage[0].forward_seconds[0];
  };
  EXPECT_NE(forwards(runs->runs.front().stages[1]), 0.25);  // the stage's own samples are left alone
}

// On a narrow terminal the largest kinds have columns of their own.
TEST(StageCurves, memory_is_told_by_kind) {
  v1::MeasurementsResponse measured = response();
  EXPECT_EQ(curves_text(curves_of(measured)).find("PARAMETERS"), std::string::npos);
  for (int rank = 0; rank < 2; ++rank) {
    v1::RankMemory& memory = *measured.mutable_attempts(0)->add_memory();
    memory.set_rank(rank);
    int64_t bytes = 512 * (rank + 1);
    for (const char* kind : {"activations", "parameters", "weight_versions"}) {
      v1::MemoryUse& use = *memory.add_kinds();
      use.set_kind(kind);
      use.set_peak_bytes(bytes);
      use.set_predicted_bytes(bytes + 8);
      bytes /= 2;
    }
  }
  const StageCurves curves = curves_of(measured);
  EXPECT_THAT(curves_text(curves), HasSubstr("RANK   ACTIVATIONS   PARAMETERS   WEIGHT VERSIONS\n"
                                             "   0          512B         256B              128B\n"
                                             "   1       1.00KiB         512B              256B\n"));
  EXPECT_THAT(curves_text(curves, {.columns = 32}), HasSubstr("RANK   ACTIVATIONS   OTHERS\n"
                                                              "   0          512B     384B\n"
                                                              "   1       1.00KiB     768B\n"));
  EXPECT_EQ(curves_text(curves, {.columns = 10}).find("ACTIVATIONS"), std::string::npos);
  const Json kinds = curves_json(curves)["ranks"][1]["kinds"];
  EXPECT_EQ(kinds["weight_versions"]["peak_bytes"], 256);
  EXPECT_EQ(kinds["parameters"]["predicted_bytes"], 520);
}

TEST(StageCurves, say_what_planned_is) {
  v1::MeasurementsResponse measured = response();
  EXPECT_THAT(curves_text(curves_of(measured)),
              HasSubstr("planned is the mean of the stages, since nothing was planned"));
  measured.set_spec_yaml(std::string(kJob) +
                         "# planned stages: 60 ms of embedding 0-1 | 120 ms of 2-3 head\n");
  const StageCurves planned = curves_of(measured);
  EXPECT_THAT(curves_text(planned), HasSubstr("planned is what was planned when the job was submitted"));
  EXPECT_EQ(planned.stages[1].planned_ms, 120);
  EXPECT_EQ(curves_json(planned)["planned"], "submit");
}

TEST(MeasuredRuns, halves_of_a_backward_are_one) {
  v1::MeasurementsResponse measured;
  v1::AttemptMeasurements& attempt = *measured.add_attempts();
  attempt.add_stages()->add_items("embedding");
  add_series(attempt, 0, 0, v1::MEASURED_KIND_FORWARD, 0.25f);
  add_series(attempt, 0, 0, v1::MEASURED_KIND_INPUT_GRADIENT, 0.5f);
  add_series(attempt, 0, 0, v1::MEASURED_KIND_WEIGHT_GRADIENT, 0.125f);
  add_series(attempt, 0, -1, v1::MEASURED_KIND_STEP, 1);
  const auto runs = measured_runs(measured);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_EQ(runs->runs[0].stages[0][0].backward_seconds.front(), 0.625);
}

TEST(MeasuredRuns, message_that_nobody_sends_is_refused) {
  v1::MeasurementsResponse measured = response();
  measured.mutable_attempts(0)->mutable_series(0)->set_stage(7);
  EXPECT_THAT(message(measured_runs(measured).status()),
              HasSubstr("attempt 1: measurements of stage 7 of 2"));
  EXPECT_FALSE(measured_runs({}).ok());
  measured = response();
  measured.mutable_attempts(0)->mutable_series()->DeleteSubrange(0, 1);
  EXPECT_THAT(message(measured_runs(measured).status()), HasSubstr("as many forwards as backwards"));
}

// The coordinator leaves the same ones out (plan/rebalancing/sampled_attempt.h).
TEST(MeasuredRuns, attempt_that_says_nothing_is_left_out_and_told) {
  v1::MeasurementsResponse measured = response();
  for (int64_t number = 2; number <= 5; ++number) {
    *measured.add_attempts() = measured.attempts(0);
    measured.mutable_attempts(static_cast<int>(number) - 1)->set_attempt(number);
  }
  measured.mutable_attempts(0)->mutable_series(0)->set_stage(7);
  measured.mutable_attempts(2)->mutable_stages(0)->set_items(0, "tail");
  measured.mutable_attempts(4)->mutable_series()->DeleteSubrange(0, 1);
  const auto runs = measured_runs(measured);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->runs.size(), 2u);
  ASSERT_EQ(runs->response.attempts_size(), 2);  // those that the runs are of
  EXPECT_EQ(runs->response.attempts(0).attempt(), 2);
  EXPECT_EQ(runs->response.attempts(1).attempt(), 4);
  for (const char* each :
       {"attempt 1: measurements of stage 7 of 2", "; attempt 3: ", "tail", "; attempt 5: stage 0"})
    EXPECT_THAT(runs->left_out, HasSubstr(each));
  EXPECT_EQ(curves_of(measured).attempt, 4);
  EXPECT_EQ(measured_runs(response())->left_out, "");
}

TEST(ProposalText, says_both_splits_the_gain_and_the_key_for_the_job_file) {
  const v1::MeasurementsResponse measured = response();
  const plan::JobSpec job = *plan::parse_job_spec(measured.spec_yaml());
  auto runs = measured_runs(measured)->runs;
  runs[0].step_seconds.assign(40, 0.6);  // 4 microbatches of 135 ms, filling and draining of 60 ms
  const auto proposal = plan::propose(job, runs, {.steps_left = 1000});
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  const std::string text = proposal_text(*proposal, std::nullopt);
  EXPECT_THAT(text, HasSubstr("parallel.split: [[embedding, 0, 1, 2], [3, head]]"));
  EXPECT_THAT(text, HasSubstr("move: "));
  EXPECT_EQ(proposal_json("tiny", *proposal, std::nullopt)["answer"], "move");
  const plan::LastMove undone{job.parallel.split, plan::MoveOutcomeSoFar::Failed, 0.01, 0.2,
                              "nothing came of it"};
  EXPECT_THAT(proposal_text(*proposal, undone), HasSubstr("undo: nothing came of it"));
  const Json json = proposal_json("tiny", *proposal, undone);
  EXPECT_EQ(json["answer"], "undo");
  EXPECT_EQ(json["last_move"]["outcome"], "failed");
  plan::LastMove open = undone;
  open.outcome = plan::MoveOutcomeSoFar::Open;
  open.because = "too early to say";
  EXPECT_THAT(proposal_text(*proposal, open), EndsWith("stay: too early to say\n"));
}

}  // namespace
}  // namespace penstock::client
