#include "client/present/job_diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace penstock::client {
namespace {

using plan::Finding;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// Stages of 30 ms on two ranks each, stage s on ranks 2 s and 2 s + 1.
plan::StageTrace even_trace(size_t stages) {
  plan::StageTrace trace;
  for (size_t stage = 0; stage < stages; ++stage) {
    trace.cells.emplace_back(2, plan::CellSamples{std::vector<double>(40, 10), std::vector<double>(40, 20)});
    trace.ranks.push_back({2 * static_cast<int>(stage), 2 * static_cast<int>(stage) + 1});
  }
  return trace;
}

void slow_down(plan::CellSamples& cell, double factor) {
  for (double& ms : cell.forward_ms) ms *= factor;
  for (double& ms : cell.backward_ms) ms *= factor;
}

// `workers` of ranks 0, 1, ..., whose stage is half of their number.
v1::MeasurementsResponse run_by(const std::vector<std::string>& workers) {
  v1::MeasurementsResponse measurements;
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    v1::StageStatus& stage = *measurements.add_stages();
    stage.set_rank(static_cast<int>(rank));
    stage.set_stage(static_cast<int>(rank / 2));
    stage.set_worker(workers[rank]);
  }
  return measurements;
}

JobDiagnosis diagnosed(const plan::StageTrace& trace, const std::vector<std::string>& workers) {
  JobDiagnosis diagnosis{.times = *plan::diagnose(trace), .suspects = {}, .memory = {}, .routing = {}};
  diagnosis.suspects = suspects_of(diagnosis.times, {}, run_by(workers));
  return diagnosis;
}

// Rank 3, of stage 1, takes a quarter longer.
JobDiagnosis straggling(const std::vector<std::string>& workers = {"a", "b", "c", "worker-7"}) {
  plan::StageTrace trace = even_trace(2);
  slow_down(trace.cells[1][1], 1.25);
  return diagnosed(trace, workers);
}

TEST(JobDiagnosis, of_a_straggler_names_its_worker_and_says_drain_or_derate) {
  const JobDiagnosis diagnosis = straggling();
  ASSERT_EQ(diagnosis.times.main().finding, Finding::Straggler);
  const std::string text = diagnosis_text(diagnosis);
  EXPECT_THAT(text, HasSubstr("straggler: the worker of stage 1 in replica 1 takes 1.25 times"));
  EXPECT_THAT(text, HasSubstr("(37.5 ms, not 30); without that the slowest rank would take 20 % less\n"));
  EXPECT_THAT(text,
              HasSubstr("worker worker-7, with rank 3: `penstock drain worker-7` keeps new ranks away from "
                        "it; to plan with it, derate it to 0.80 of the others' speed\n"));
  const Json json = diagnosis_json(diagnosis);
  EXPECT_EQ(json["suspects"][0]["worker"], "worker-7");
  EXPECT_EQ(json["suspects"][0]["ranks"], Json({3}));
  EXPECT_EQ(json["verdict"], "straggler");
  EXPECT_EQ(json["where"], Json({{"stage", 1}, {"replica", 1}}));
  EXPECT_EQ(json["workers"][0]["rank"], 3);
  EXPECT_EQ(json["also"], Json::array());
}

TEST(JobDiagnosis, a_worker_that_runs_healthy_ranks_too_is_said_to) {
  const JobDiagnosis diagnosis = straggling({"a", "a", "b", "b"});
  EXPECT_THAT(diagnosis.suspects[0].healthy_ranks, ElementsAre(2));
  EXPECT_THAT(diagnosis_text(diagnosis),
              HasSubstr("keeps new ranks away from it, though it runs rank 2 as well, which is not slow;"));
}

TEST(JobDiagnosis, a_rank_whose_experts_get_more_rows_is_not_drained) {
  JobDiagnosis diagnosis = straggling();
  diagnosis.suspects[0].load = 1.4;
  EXPECT_THAT(
      diagnosis_text(diagnosis),
      AllOf(HasSubstr("its experts get 1.40 times the rows of the mean rank"),
            HasSubstr("a larger model.moe.router_aux_loss_coef keeps experts even; do not drain workers"),
            Not(HasSubstr("penstock drain")), Not(HasSubstr("derate"))));
  EXPECT_THAT(std::string(diagnosis_json(diagnosis)["advice"]), HasSubstr("router_aux_loss_coef"));
  diagnosis.suspects[0].load = 1.1;  // which explains but a part of 1.25
  EXPECT_THAT(diagnosis_text(diagnosis), HasSubstr("penstock drain"));
}

TEST(JobDiagnosis, of_a_slow_replica_says_where_it_runs_and_drains_nothing) {
  plan::StageTrace trace = even_trace(4);
  for (auto& stage : trace.cells) slow_down(stage[1], 1.5);
  const JobDiagnosis diagnosis = diagnosed(trace, {"a", "b", "a", "b", "a", "b", "a", "b"});
  ASSERT_THAT(diagnosis.suspects, SizeIs(1));
  EXPECT_THAT(diagnosis.suspects[0].ranks, ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(diagnosis.suspects[0].healthy_ranks, IsEmpty());
  EXPECT_THAT(diagnosis_text(diagnosis),
              AllOf(HasSubstr("slow-replica: replica 1 takes 1.50 times what the others take"),
                    HasSubstr("ranks 1, 3, 5 and 1 more run on worker b\n"), Not(HasSubstr("drain"))));
}

TEST(JobDiagnosis, what_else_was_found_is_told_beside) {
  plan::StageTrace trace = even_trace(4);
  for (plan::CellSamples& cell : trace.cells[3]) slow_down(cell, 1.6);
  slow_down(trace.cells[3][1], 1.5);
  const JobDiagnosis diagnosis = diagnosed(trace, {"a", "b", "c", "d", "e", "f", "g", "h"});
  const std::string text = diagnosis_text(diagnosis);
  EXPECT_THAT(text, AllOf(HasSubstr("\nstraggler: the worker of stage 3 in replica 1"),
                          HasSubstr("\nalso imbalance: stage 3 takes 1.60 times the median of the others"),
                          HasSubstr("move layers away from stage 3, which holds the head,"),
                          Not(HasSubstr("do not move layers"))));
  EXPECT_EQ(diagnosis_json(diagnosis)["also"][0]["verdict"], "imbalance");
}

TEST(JobDiagnosis, ranks_with_several_stages_have_a_column) {
  plan::StageTrace trace = even_trace(4);
  EXPECT_THAT(diagnosis_text("", *plan::diagnose(trace)), Not(HasSubstr("RANK'S FACTOR")));
  trace.ranks = {{0, 1}, {2, 3}, {2, 3}, {0, 1}};
  for (plan::CellSamples& cell : trace.cells[0]) slow_down(cell, 2);
  const std::string text = diagnosis_text("", *plan::diagnose(trace));
  EXPECT_THAT(text, HasSubstr("RANK'S FACTOR"));
  EXPECT_THAT(text, HasSubstr("imbalance: stages 0, 3 take 1.50 times what the other takes"));
}

TEST(JobDiagnosis, says_memory_and_routing_where_they_are_known) {
  JobDiagnosis diagnosis = straggling();
  EXPECT_THAT(diagnosis_text(diagnosis), Not(HasSubstr("memory")));
  EXPECT_FALSE(diagnosis_json(diagnosis).contains("routing"));
  diagnosis.memory = plan::judge_memory({95, 50, 40}, 100);
  diagnosis.routing = {.routing = plan::Routing::Drift,
                       .stage = 1,
                       .least_load = 1.1,
                       .most_load = 1.4,
                       .because = "rows move",
                       .advice = "plan for 1.4"};
  EXPECT_THAT(diagnosis_text(diagnosis), HasSubstr("memory-imbalance: rank 0 holds"));
  EXPECT_THAT(diagnosis_text(diagnosis), HasSubstr("routing-drift: rows move\nplan for 1.4\n"));
  EXPECT_EQ(diagnosis_json(diagnosis)["routing"]["verdict"], "drift");
  EXPECT_EQ(diagnosis_json(diagnosis)["memory"]["fullest_rank"], 0);
}

}  // namespace
}  // namespace penstock::client
