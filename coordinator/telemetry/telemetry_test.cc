#include "coordinator/telemetry/telemetry.h"

#include <gmock/gmock.h>
#include <prometheus/text_serializer.h>

namespace penstock::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TelemetryTest : public ::testing::Test {
 protected:
  std::string page() const { return prometheus::TextSerializer().Serialize(registry->Collect()); }

  static StepCommitted step(const std::string& job, int64_t number) {
    StepReport report;
    report.rank = RankIndex(1);
    report.wall_seconds = 2;
    report.wait_seconds = 0.5;
    report.memory = {{"parameters", 4096}};
    report.stages = {{StageIndex(1), 0.25, 0.5, 0, 0, 4, 3}, {StageIndex(3), 0.25, 0, 0.125, 0.0625, 2, 2}};
    return {.job = job, .step = number, .loss = 3.5, .tokens = 128, .seconds = 2, .reports = {report}};
  }

  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  Telemetry telemetry{registry};
};

TEST_F(TelemetryTest, committed_step_fills_the_families_of_its_job) {
  telemetry.record(step("a", 1));
  telemetry.record(step("a", 2));
  const std::string text = page();
  EXPECT_THAT(text, HasSubstr("penstock_job_step{training_job=\"a\"} 2"));
  EXPECT_THAT(text, HasSubstr("penstock_job_loss{training_job=\"a\"} 3.5"));
  EXPECT_THAT(text, HasSubstr("penstock_job_tokens_total{training_job=\"a\"} 256"));
  EXPECT_THAT(text, HasSubstr("penstock_step_seconds_count{training_job=\"a\"} 2"));
  EXPECT_THAT(text, HasSubstr("penstock_pipeline_bubble_ratio{rank=\"1\",training_job=\"a\"} 0.25"));
  EXPECT_THAT(text, HasSubstr("penstock_stage_seconds{action=\"F\",stage=\"1\",training_job=\"a\"} 0.25"));
  EXPECT_THAT(text, HasSubstr("penstock_stage_seconds{action=\"B\",stage=\"1\",training_job=\"a\"} 0.5"));
  EXPECT_THAT(text, HasSubstr("penstock_stage_seconds{action=\"wait\",stage=\"1\",training_job=\"a\"} 0.5"));
  EXPECT_THAT(
      text,
      HasSubstr("penstock_rank_memory_peak_bytes{kind=\"parameters\",rank=\"1\",training_job=\"a\"} 4096"));
  EXPECT_THAT(text, HasSubstr("penstock_activation_slots{stage=\"1\",state=\"total\",training_job=\"a\"} 4"));
  EXPECT_THAT(text, HasSubstr("penstock_activation_slots{stage=\"1\",state=\"peak\",training_job=\"a\"} 3"));
  EXPECT_THAT(text, Not(HasSubstr("penstock_payload_slots{")));  // no experts
}

TEST_F(TelemetryTest, stage_on_several_ranks_shows_the_one_with_most_and_payloads_of_all_its_layers) {
  // Layers 2 and 3 with two kinds each; a sum over ranks would grow with their number and tell of no limit.
  const auto payloads = [](int peak, double oldest) {
    return std::vector<PayloadSlots>{{StageIndex(1), LayerIndex(2), "inputs", 3, 1, peak, oldest},
                                     {StageIndex(1), LayerIndex(2), "output_gradients", 1, 0, 1, 0.125},
                                     {StageIndex(1), LayerIndex(3), "inputs", 3, 0, peak, 0.25},
                                     {StageIndex(3), LayerIndex(6), "inputs", 2, 0, 2, 8}};
  };
  StepCommitted committed = step("a", 1);
  committed.reports.push_back(committed.reports[0]);
  committed.reports[0].payloads = payloads(3, 0.5);
  committed.reports[1].payloads = payloads(2, 0.75);
  committed.reports[1].rank = RankIndex(0);
  committed.reports[1].stages[0].forward_seconds = 0.125;
  committed.reports[1].wait_seconds = 1.5;
  telemetry.record(committed);
  const std::string text = page();
  const auto expect = [&](const std::string& series) { EXPECT_THAT(text, HasSubstr(series)); };
  expect("penstock_stage_seconds{action=\"F\",stage=\"1\",training_job=\"a\"} 0.25");
  expect("penstock_stage_seconds{action=\"wait\",stage=\"1\",training_job=\"a\"} 1.5");
  expect("penstock_payload_slots{stage=\"1\",state=\"total\",training_job=\"a\"} 7");
  expect("penstock_payload_slots{stage=\"1\",state=\"held\",training_job=\"a\"} 1");
  expect("penstock_payload_slots{stage=\"1\",state=\"peak\",training_job=\"a\"} 7");
  expect("penstock_payload_slots{stage=\"3\",state=\"peak\",training_job=\"a\"} 2");
  expect("penstock_payload_oldest_lease_seconds{stage=\"1\",training_job=\"a\"} 0.75");
  telemetry.record(JobRetired{"a"});
  EXPECT_THAT(page(), Not(HasSubstr("penstock_payload_slots{")));
}

TEST_F(TelemetryTest, load_of_experts_is_that_of_all_ranks_together_in_the_most_uneven_layer) {
  // Two ranks share four experts of layer 2 out; layer 3 has all of its experts on both.
  StepCommitted committed = step("a", 1);
  EXPECT_THAT(page(), Not(HasSubstr("penstock_expert_load_ratio{")));
  committed.reports.push_back(committed.reports[0]);
  committed.reports[0].expert_rows = {{StageIndex(1), LayerIndex(2), 0, {10, 30}, 0},
                                      {StageIndex(1), LayerIndex(3), 0, {9, 1}, 0}};
  committed.reports[1].expert_rows = {{StageIndex(1), LayerIndex(2), 2, {20, 20}, 0},
                                      {StageIndex(1), LayerIndex(3), 0, {1, 9}, 0}};
  telemetry.record(committed);
  EXPECT_THAT(page(), HasSubstr("penstock_expert_load_ratio{stage=\"1\",training_job=\"a\"} 1.5"));
  telemetry.record(JobRetired{"a"});
  EXPECT_THAT(page(), Not(HasSubstr("penstock_expert_load_ratio{")));
}

TEST_F(TelemetryTest, split_backward_is_shown_by_its_parts_only) {
  // A series that is never measured must be absent, not zero.
  telemetry.record(step("a", 1));
  EXPECT_THAT(page(), HasSubstr("penstock_stage_seconds{action=\"I\",stage=\"3\",training_job=\"a\"} 0.125"));
  EXPECT_THAT(page(),
              HasSubstr("penstock_stage_seconds{action=\"W\",stage=\"3\",training_job=\"a\"} 0.0625"));
  EXPECT_THAT(page(), Not(HasSubstr("action=\"B\",stage=\"3\"")));
  EXPECT_THAT(page(), Not(HasSubstr("action=\"I\",stage=\"1\"")));
}

TEST_F(TelemetryTest, retired_job_leaves_no_series_behind) {
  telemetry.record(step("a", 1));
  telemetry.record(step("b", 1));
  telemetry.record(JobRetired{"a"});
  telemetry.record(JobRetired{"never-seen"});
  EXPECT_THAT(page(), Not(HasSubstr("training_job=\"a\"")));
  EXPECT_THAT(page(), HasSubstr("training_job=\"b\""));
  telemetry.record(step("a", 1));  // a namesake starts anew
  EXPECT_THAT(page(), HasSubstr("penstock_job_tokens_total{training_job=\"a\"} 128"));
}

TEST_F(TelemetryTest, census_shows_every_state_from_the_start) {
  EXPECT_THAT(page(), HasSubstr("penstock_jobs{state=\"queued\"} 0"));
  Census census;
  census.jobs[static_cast<size_t>(JobState::Running)] = 3;
  census.workers_lost = 2;
  census.devices_busy = 5;
  telemetry.set_census(census);
  EXPECT_THAT(page(), HasSubstr("penstock_jobs{state=\"running\"} 3"));
  EXPECT_THAT(page(), HasSubstr("penstock_workers{state=\"lost\"} 2"));
  EXPECT_THAT(page(), HasSubstr("penstock_devices{state=\"assigned\"} 5"));
}

TEST_F(TelemetryTest, expirations_and_refusals_are_counted) {
  telemetry.record(LeaseExpired{"worker-1"});
  telemetry.record(ReportRefused{Refusal::Stale});
  telemetry.record(ReportRefused{Refusal::Stale});
  EXPECT_THAT(page(), HasSubstr("penstock_worker_lease_expirations_total 1"));
  EXPECT_THAT(page(), HasSubstr("penstock_reports_refused_total{reason=\"stale\"} 2"));
  EXPECT_THAT(page(), HasSubstr("penstock_reports_refused_total{reason=\"malformed\"} 0"));
}

}  // namespace
}  // namespace penstock::coordinator
