#include "client/present/expert_loads.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "client/present/job_diagnosis.h"

namespace penstock::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kJob =
    "name: tiny\n"
    "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 16,\n"
    "  max_position_embeddings: 8,\n"
    "  moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 8, layers: [1, 3]}}\n"
    "data: {source: /data/text.txt, sequence_length: 8}\n"
    "train: {steps: 100, global_batch_size: 8, microbatch_size: 1, dtype: float32}\n"
    "parallel: {pipeline: 2, expert: 2}\n";

v1::LayerLoad& add_layer(v1::AttemptMeasurements& attempt, int layer, int stage, const std::vector<int64_t>& rows) {
  v1::LayerLoad& load = *attempt.add_expert_loads();
  load.set_layer(layer);
  load.set_stage(stage);
  load.set_steps(10);
  load.mutable_rows()->Add(rows.begin(), rows.end());
  return load;
}

TEST(LayerRows, are_those_of_a_mean_step) {
  v1::AttemptMeasurements attempt;
  add_layer(attempt, 1, 0, {100, 400, 200, 100});
  add_layer(attempt, 3, 1, {0, 0, 0, 0});
  attempt.add_expert_loads();  // of no steps
  const std::vector<LayerRows> layers = layer_rows(attempt);
  ASSERT_THAT(layers, SizeIs(2));
  EXPECT_EQ(layers[0].layer, 1);
  EXPECT_EQ(layers[0].experts, 4);
  EXPECT_EQ(layers[0].least, 10);
  EXPECT_EQ(layers[0].mean, 20);
  EXPECT_EQ(layers[0].most, 40);
  EXPECT_EQ(layers[0].ratio, 2);
  EXPECT_EQ(layers[1].ratio, 0);
}

TEST(LoadOfRank, is_that_of_its_own_experts_in_its_stage) {
  // Of pipelines 0 and 1 rank 2p has experts 0 and 1, rank 2p + 1 experts 2 and 3.
  const plan::JobSpec job = *plan::parse_job_spec(kJob);
  v1::AttemptMeasurements attempt;
  add_layer(attempt, 1, 0, {10, 20, 30, 60});
  add_layer(attempt, 3, 1, {50, 50, 0, 0});
  EXPECT_DOUBLE_EQ(load_of_rank(attempt, job, 0, 0), 0.5);
  EXPECT_DOUBLE_EQ(load_of_rank(attempt, job, 0, 1), 1.5);
  EXPECT_DOUBLE_EQ(load_of_rank(attempt, job, 1, 2), 2);
  EXPECT_EQ(load_of_rank(attempt, job, 7, 0), 0);
}

TEST(RoutedStages, are_the_history) {
  v1::AttemptMeasurements attempt;
  v1::StageHistory& stage = *attempt.mutable_history()->add_stages();
  stage.set_stage(3);
  for (const float value : {1.f, 1.5f}) {
    stage.add_load(value);
    stage.add_seconds(2 * value);
  }
  const std::vector<plan::RoutedStage> stages = routed_stages(attempt);
  ASSERT_THAT(stages, SizeIs(1));
  EXPECT_EQ(stages[0].stage, 3);
  EXPECT_THAT(stages[0].load, ElementsAre(1, 1.5));
  EXPECT_THAT(stages[0].seconds, ElementsAre(2, 3));
  EXPECT_THAT(routed_stages({}), IsEmpty());
}

// Two stages on two ranks each; rank 1 of stage 1 takes a quarter longer.
JobDiagnosis straggling() {
  plan::StageTrace trace;
  trace.cells.assign(2, std::vector<plan::CellSamples>(2));
  for (size_t stage = 0; stage < 2; ++stage) {
    for (size_t replica = 0; replica < 2; ++replica) {
      const double factor = stage == 1 && replica == 1 ? 1.25 : 1;
      trace.cells[stage][replica] = {std::vector<double>(40, 10 * factor), std::vector<double>(40, 20 * factor)};
    }
  }
  return {.times = *plan::diagnose(trace), .suspect = Suspect{"worker-7", 3, 0}, .memory = {}, .routing = {}};
}

TEST(JobDiagnosis, of_a_straggler_names_its_worker_and_says_drain_or_derate) {
  const JobDiagnosis diagnosis = straggling();
  ASSERT_EQ(diagnosis.times.finding, plan::Finding::Straggler);
  const std::string text = diagnosis_text(diagnosis);
  EXPECT_THAT(text, HasSubstr("straggler: the worker of stage 1 in replica 1 takes 1.25 times"));
  EXPECT_THAT(text, HasSubstr("that is worker worker-7, with rank 3: `penstock drain worker-7`"));
  EXPECT_THAT(text, HasSubstr("derate it to 0.80 of the others' speed"));
  const Json json = diagnosis_json(diagnosis);
  EXPECT_EQ(json["suspect"]["worker"], "worker-7");
  EXPECT_EQ(json["verdict"], "straggler");
}

TEST(JobDiagnosis, a_rank_whose_experts_get_more_rows_is_not_drained) {
  JobDiagnosis diagnosis = straggling();
  diagnosis.suspect->load = 1.4;
  EXPECT_THAT(diagnosis_text(diagnosis), HasSubstr("whose experts get 1.40 times the rows of the mean rank"));
  EXPECT_THAT(diagnosis_text(diagnosis), Not(HasSubstr("penstock drain")));
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
