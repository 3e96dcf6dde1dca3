// The files of the planning commands, both ways.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/interop/job_profile.h"
#include "plan/interop/layer_costs.h"
#include "plan/interop/measured_stages.h"
#include "plan/interop/planned_job.h"
#include "plan/interop/planning_json.h"
#include "plan/interop/stage_trace.h"

namespace penstock::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kCosts =
    R"({"layers": [{"name": "embedding", "time_ms": 1, "activation_bytes": 10.0, "static_bytes": 100},
                   {"name": "block.0", "time_ms": 4.0000004, "forward_ms": 1.5},
                   {"time_ms": 4, "recompute": {"time_ms": 5.5, "activation_bytes": 1}}],
        "worker_speed": [1, 0.8]})";

TEST(LayerCostsFile, is_read_in_nanoseconds_and_bytes) {
  const StatusOr<LayerCosts> costs = layer_costs_from_json(kCosts, "x.json");
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->layers.size(), 3u);
  EXPECT_EQ(costs->layers[0].keep.activation_bytes, 10);
  EXPECT_EQ(costs->layers[1].keep.time_ns, 4'000'000);
  EXPECT_EQ(costs->layers[2].name, "2");
  EXPECT_EQ(costs->layers[2].recompute->time_ns, 5'500'000);
  EXPECT_THAT(costs->forward_ns, ElementsAre(333'333, 1'500'000, 1'333'333));
  EXPECT_THAT(costs->rank_speed, ElementsAre(1'000'000, 800'000));
}

TEST(LayerCostsFile, a_mistake_is_refused_with_its_place) {
  const auto refusal = [](const std::string& text) {
    return message(layer_costs_from_json(text, "x.json").status());
  };
  EXPECT_THAT(refusal("[]"), HasSubstr("x.json: file: expected an object"));
  EXPECT_EQ(refusal("{}"), "x.json: layers: missing");
  EXPECT_THAT(refusal(R"({"layers": [{"time_ms": -1}]})"),
              HasSubstr("x.json: layers[0].time_ms: expected milliseconds"));
  EXPECT_THAT(refusal(R"({"layers": [{"time_ms": 1, "forward_ms": 2}]})"), HasSubstr("layers[0].forward_ms"));
  EXPECT_THAT(refusal(R"({"layers": [{"time_ms": 1, "static_bytes": 1e99}]})"),
              HasSubstr("layers[0].static_bytes"));
  EXPECT_THAT(refusal(R"({"layers": [{"time_ms": 1, "recompute": {}}]})"),
              HasSubstr("layers[0].recompute.time_ms: missing"));
  EXPECT_THAT(refusal(R"({"layers": [], "worker_speed": [0]})"),
              HasSubstr("worker_speed: expected 0.01 to 100"));
}

TEST(LayerCostsFile, an_answer_is_written_with_every_number) {
  PartitionRequest request;
  request.layers = layer_costs_from_json(kCosts, "x.json")->layers;
  request.ranks = 2;
  request.in_flight = {2, 1};
  const auto json = nlohmann::json::parse(partition_to_json(request, *partition(request)));
  EXPECT_EQ(json["split"], nlohmann::json({0, 2, 3}));
  EXPECT_EQ(json["stage_ms"], nlohmann::json({5.0, 4.0}));
  EXPECT_EQ(json["slowest_ms"], 5.0);
  EXPECT_EQ(json["peak_bytes"], nlohmann::json({120, 0}));
  EXPECT_EQ(json["recomputed"], nlohmann::json({0, 0}));
  request.budget_bytes = {1};
  const auto refused = nlohmann::json::parse(partition_to_json(request, *partition(request)));
  EXPECT_EQ(refused["feasible"], false);
  EXPECT_EQ(refused["smallest_budget_bytes"], 120);  // 100, and two of 10 in flight
}

TEST(MeasuredStagesFile, is_read_and_its_fit_written) {
  const StatusOr<MeasuredStages> measured = measured_stages_from_json(
      R"({"stages": [{"layers": {"block": 4}, "forward_ms": 8, "backward_ms": 16, "worker": "a"}],
          "predict": [{"layers": {"block": 1}}]})",
      "x.json");
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->stages[0].worker, "a");
  EXPECT_FALSE(measured->stages[0].tokens.has_value());
  const StatusOr<FittedTimes> fitted = fit_layer_times(measured->stages);
  const auto json =
      nlohmann::json::parse(fitted_to_json(*fitted, {*predict_stage(*fitted, measured->predict[0].layers)}));
  EXPECT_NEAR(json["types"]["block"]["forward_ms"], 2, 1e-12);
  EXPECT_NEAR(json["predicted"][0]["time_ms"], 6, 1e-12);
  EXPECT_EQ(json["residual"]["degrees_of_freedom"], 0);
  EXPECT_THAT(
      message(measured_stages_from_json(R"({"stages": [{"layers": {"block": 1.5}}]})", "x.json").status()),
      HasSubstr("x.json: stages[0].layers.block: expected a count"));
}

TEST(StageTraceFile, is_read_by_stage_and_replica) {
  const StatusOr<NamedTraces> traces = stage_traces_from_json(
      R"({"traces": {"A": {"raw_ms": {"dp0_stage0_F": {"9": [3], "10": [1, 2]}, "dp0_stage0_B": {"10": [4, 5], "9": [6]},
                                      "dp1_stage0_F": {"9": [7]}, "dp1_stage0_B": {"9": [8]}}}}})",
      "x.json");
  ASSERT_TRUE(traces.ok()) << traces.status();
  const StageTrace& trace = (*traces)[0].second;
  ASSERT_EQ(trace.cells.size(), 1u);
  ASSERT_EQ(trace.cells[0].size(), 2u);
  // In one order of steps for both directions, so that samples of a microbatch meet.
  EXPECT_THAT(trace.cells[0][0].forward_ms, ElementsAre(1, 2, 3));
  EXPECT_THAT(trace.cells[0][0].backward_ms, ElementsAre(4, 5, 6));
  EXPECT_THAT(trace.cells[0][1].backward_ms, ElementsAre(8));
  const auto refusal = [](const std::string& text) {
    return message(stage_traces_from_json(text, "x.json").status());
  };
  EXPECT_THAT(refusal(R"({"raw_ms": {"dp0_stage0_X": {}}})"),
              HasSubstr("raw_ms: expected names as dp0_stage0_F"));
  EXPECT_THAT(refusal(R"({"raw_ms": {"dp0_stage1_F": {"1": [1]}}})"),
              HasSubstr("expected every stage in every replica"));
  EXPECT_THAT(refusal(R"({"raw_ms": {"dp0_stage0_F": {"1": ["x"]}}})"),
              HasSubstr("raw_ms.dp0_stage0_F.1[0]: expected a number"));
  EXPECT_THAT(refusal(R"({"traces": {}})"), HasSubstr("traces: expected at least one"));
  // One replica under two names, and forwards and backwards of different microbatches.
  EXPECT_THAT(
      refusal(
          R"({"raw_ms": {"dp00_stage0_F": {"1": [1]}, "dp0_stage0_F": {"1": [5]}, "dp0_stage0_B": {"1": [1]}}})"),
      HasSubstr("expected names as dp0_stage0_F, indices below 4096, found \"dp00_stage0_F\""));
  EXPECT_THAT(
      refusal(R"({"raw_ms": {"dp0_stage0_F": {"1": [10, 10]}, "dp0_stage0_B": {"2": [20, 20]}}})"),
      HasSubstr(
          "x.json: raw_ms: stage 0 replica 0: expected as many forwards as backwards in every step, found 0 "
          "and 2 in step \"2\""));
  EXPECT_THAT(
      refusal(
          R"({"raw_ms": {"dp0_stage0_F": {"1": [1, 2], "2": [1]}, "dp0_stage0_B": {"1": [2], "2": [1, 2]}}})"),
      HasSubstr("found 2 and 1 in step \"1\""));
}

TEST(StageTraceFile, says_which_ranks_hold_several_stages) {
  const auto read = [](const std::string& ranks) {
    return stage_traces_from_json(
        R"({"raw_ms": {"dp0_stage0_F": {"1": [1]}, "dp0_stage0_B": {"1": [2]}, "dp1_stage0_F": {"1": [1]}, "dp1_stage0_B": {"1": [2]},
                       "dp0_stage1_F": {"1": [1]}, "dp0_stage1_B": {"1": [2]}, "dp1_stage1_F": {"1": [1]}, "dp1_stage1_B": {"1": [2]}},
            "stage_ranks": )" +
            ranks + "}",
        "x.json");
  };
  EXPECT_THAT((*read("[3, 0]"))[0].second.ranks, ElementsAre(ElementsAre(6, 7), ElementsAre(0, 1)));
  EXPECT_THAT((*read("[0, 0]"))[0].second.ranks, ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));
  for (const char* bad : {"[0]", "[0, 1, 2]", "[0, -1]", "[0, 0.5]", "[0, 4096]"})
    EXPECT_THAT(message(read(bad).status()), HasSubstr("stage_ranks: expected the rank of each of 2 stages"))
        << bad;
}

JobSpec small_job() {
  JobSpec job;
  job.model = {.vocab_size = 100,
               .hidden_size = 8,
               .num_hidden_layers = 2,
               .num_attention_heads = 2,
               .num_key_value_heads = 2,
               .intermediate_size = 16,
               .max_position_embeddings = 8};
  job.data.sequence_length = 8;
  job.train.global_batch_size = 4;
  job.train.microbatch_size = 2;
  return job;
}

TEST(JobProfile, costs_by_type_become_those_of_the_jobs_items) {
  StatusOr<LayerCosts> costs = job_times_from_json(
      R"({"types": {"embedding": {"forward_ms": 1, "backward_ms": 2}, "block": {"forward_ms": 3, "backward_ms": 4},
                    "head": {"forward_ms": {"fixed_ms": 1, "per_token_ms": 0.5}, "backward_ms": 6}}})",
      "x.json", small_job());
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->layers.size(), 4u);
  EXPECT_EQ(costs->layers[1].name, "block.0");
  EXPECT_EQ(costs->layers[2].keep.time_ns, 7'000'000);
  EXPECT_EQ(costs->forward_ns[3], 9'000'000);  // 1 + 0.5 x 16 tokens
  ASSERT_TRUE(complete_bytes(small_job(), Recomputation::AsWritten, *costs).ok());
  for (const LayerCost& layer : costs->layers) {
    EXPECT_GT(layer.keep.activation_bytes, 0) << layer.name;
    EXPECT_GT(layer.keep.static_bytes, 0) << layer.name;
  }
  EXPECT_THAT(
      message(job_times_from_json(kCosts, "x.json", small_job()).status()),
      HasSubstr("x.json: layers: expected 4, the embedding, 2 blocks and the head of this job, found 3"));
}

TEST(JobProfile, blocks_with_experts_have_times_of_their_own_where_the_file_knows_of_such) {
  JobSpec job = small_job();
  job.model.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 8, .layers = {1}};
  const std::string ends =
      R"("embedding": {"forward_ms": 1, "backward_ms": 2}, "head": {"forward_ms": 5, "backward_ms": 6})";
  const std::string block = R"(, "block": {"forward_ms": 3, "backward_ms": 4})";
  const std::string experts = R"(, "block with experts": {"forward_ms": 7, "backward_ms": 8})";
  const auto second_block = [&](const std::string& types) {
    return job_times_from_json("{\"types\": {" + types + "}}", "x.json", job)->layers[2].keep.time_ns;
  };
  EXPECT_EQ(second_block(ends + block), 7'000'000);
  EXPECT_EQ(second_block(ends + block + experts), 15'000'000);
}

TEST(JobProfile, times_are_of_any_size_where_all_of_them_go_by_tokens) {
  const std::string by_tokens = R"({"fixed_ms": 1, "per_token_ms": 0.5})";
  const auto follow = [](const std::string& forward, const std::string& backward) {
    return *times_follow_tokens("{\"types\": {\"block\": {\"forward_ms\": " + forward +
                                ", \"backward_ms\": " + backward + "}}}");
  };
  EXPECT_TRUE(follow(by_tokens, by_tokens));
  EXPECT_FALSE(follow(by_tokens, "3"));
  EXPECT_FALSE(*times_follow_tokens(kCosts));
  EXPECT_FALSE(times_follow_tokens("{").ok());
}

TEST(JobProfile, what_a_job_recomputes_holds_its_input_alone) {
  JobSpec job = small_job();
  const auto completed = [&](Recomputation recomputation) {
    LayerCosts costs;
    for (int item = 0; item < 4; ++item) {
      costs.layers.push_back({"", {3'000'000, 0, 0}, std::nullopt});
      costs.forward_ns.push_back(1'000'000);
    }
    EXPECT_TRUE(complete_bytes(job, recomputation, costs).ok());
    return costs;
  };
  const LayerCosts kept = completed(Recomputation::AsWritten);
  const LayerCosts offered = completed(Recomputation::Planned);
  job.recompute = {0};
  const LayerCosts written = completed(Recomputation::AsWritten);
  EXPECT_EQ(written.layers[1].keep.activation_bytes, offered.layers[1].recompute->activation_bytes);
  EXPECT_EQ(written.layers[2].keep.activation_bytes, kept.layers[2].keep.activation_bytes);
  EXPECT_GT(written.rank_bytes, kept.rank_bytes);  // scratch for what runs again
  EXPECT_EQ(written.rank_bytes, offered.rank_bytes);
  EXPECT_FALSE(written.layers[1].recompute.has_value());
  EXPECT_EQ(offered.layers[1].recompute->time_ns, 4'000'000);
}

TEST(JobProfile, a_plan_is_written_in_the_jobs_items) {
  const JobSpec job = small_job();
  const Split split = split_of(job.model, {0, 2, 4});
  ASSERT_EQ(split.size(), 2u);
  EXPECT_TRUE(check_split(job.model, split).ok());
  PlanningRequest request;
  for (int item = 0; item < 4; ++item) {
    request.layers.push_back({"", {3'000'000, 0, 0}, std::nullopt});
    request.forward_ns.push_back(1'000'000);
  }
  request.ranks = 2;
  request.microbatches = 2;
  request.asked = {"1f1b", 1};
  request.among = {request.asked};
  const PlanningAnswer answer = *plan_training(request);
  const PlanningBasis basis = {.costs = "x.json",
                               .error = 0.04,
                               .is_measured = true,
                               .microbatch_size = 2,
                               .sizes = {{2, answer.plans[0]}}};
  const auto json = nlohmann::json::parse(planning_to_json(job.model, request, answer, basis));
  EXPECT_EQ(json["costs"]["source"], "x.json");
  EXPECT_EQ(json["costs"]["error_percent"], 4.0);
  EXPECT_EQ(json["microbatch_sizes"][0]["step_ms"], json["plans"][0]["step_ms"]);
  EXPECT_EQ(json["plans"][0]["split"], nlohmann::json::parse(R"([["embedding", 0], [1, "head"]])"));
  EXPECT_EQ(json["plans"][0]["step_ms"], 18.0);  // (2 microbatches + 1) x 6 ms
  EXPECT_TRUE(json["baselines"].contains("ends-lighter"));
}

constexpr const char* kTrained =
    "name: planned\n"
    "model: {vocab_size: 512, hidden_size: 64, num_hidden_layers: 10, num_attention_heads: 4, intermediate_size: 176,\n"
    "        max_position_embeddings: 64, moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 64,\n"
    "        layers: [1, 5]}}\n"
    "data: {source: text.txt, sequence_length: 64}\n"
    "train: {steps: 10, global_batch_size: 32, microbatch_size: 4}\n";

// Layers of a known time; bytes come from the job. A plan for 1f1b alone within the budget.
PlanningAnswer planned_within(const JobSpec& job, const std::vector<int64_t>& budget) {
  LayerCosts costs = job_times_from_json(R"({"types": {"embedding": {"forward_ms": 1, "backward_ms": 1},
                                          "block": {"forward_ms": 4, "backward_ms": 8},
                                          "head": {"forward_ms": 6, "backward_ms": 6}}})",
                                         "costs.json", job)
                         .value();
  EXPECT_TRUE(complete_bytes(job, Recomputation::Planned, costs).ok());
  PlanningRequest request;
  request.layers = costs.layers;
  request.forward_ns = costs.forward_ns;
  request.split_backward_bytes = costs.split_backward_bytes;
  request.rank_bytes = costs.rank_bytes;
  request.ranks = job.parallel.pipeline;
  request.microbatches = static_cast<int>(job.microbatches());
  request.budget_bytes = budget;
  request.asked = {"1f1b", 1};
  request.among = {request.asked};
  return plan_training(request).value();
}

TEST(PlannedJob, what_recomputes_to_fit_is_a_job_that_holds_what_was_planned) {
  const JobSpec job = parse_job_spec(std::string(kTrained) + "parallel: {pipeline: 4}\n").value();
  const int64_t free_bytes = planned_within(job, {}).plans.at(0).partition.peak_bytes;
  JobSpec all = job;
  for (int64_t layer = 0; layer < 10; ++layer) all.recompute.push_back(layer);
  const int64_t widest = recomputation_scratch_bytes(all, model_items(job.model), BackwardForm::Fused);
  bool recomputes = false;
  for (const int percent : {100, 90, 80, 70, 60}) {
    const int64_t budget = free_bytes * percent / 100;
    const PlanningAnswer answer = planned_within(job, {budget});
    ASSERT_EQ(answer.plans.size(), 1u) << percent << ": " << answer.smallest_budget.value_or(0);
    const PlannedStep& step = answer.plans[0];
    recomputes |= !step.partition.recomputed.empty();
    const JobSpec planned = planned_job(job, step);
    const StatusOr<JobSpec> read = parse_job_spec(kTrained + job_fragment(planned));
    ASSERT_TRUE(read.ok()) << read.status() << job_fragment(planned);
    EXPECT_EQ(read->parallel.split, planned.parallel.split);
    EXPECT_EQ(read->recompute, planned.recompute);
    const std::vector<MemoryPrediction> memory = memory_of_job(*read).value();
    ASSERT_EQ(memory.size(), step.partition.rank_bytes.size());
    for (size_t rank = 0; rank < memory.size(); ++rank) {
      EXPECT_LE(memory[rank].total(), budget);
      // What no rank of the plan holds, since the planner takes twelve boundary slots and scratch for the widest block
      // of the model for every one.
      const int64_t scratch = memory[rank].workspace - action_workspace_bytes(job);
      const int64_t spared = 12 * boundary_slot_bytes(job) - memory[rank].boundary + widest - scratch;
      EXPECT_EQ(memory[rank].total() + spared, step.partition.rank_bytes[rank])
          << percent << " rank " << rank;
      EXPECT_GE(spared, 0);
    }
  }
  EXPECT_TRUE(recomputes);
}

TEST(PlannedJob, says_how_many_pipelines_stand_side_by_side) {
  const JobSpec job = parse_job_spec(std::string(kTrained) +
                                     "parallel: {pipeline: 2, expert: 2, data: 2, shard_optimizer: true}\n")
                          .value();
  const JobSpec planned = planned_job(job, planned_within(job, {}).plans.at(0));
  const StatusOr<JobSpec> read = parse_job_spec(kTrained + job_fragment(planned));
  ASSERT_TRUE(read.ok()) << read.status() << job_fragment(planned);
  EXPECT_EQ(read->ranks(), 8);
  EXPECT_TRUE(read->parallel.shard_optimizer);
  EXPECT_EQ(memory_of_job(*read)->size(), 8u);
}

TEST(PlannedJob, only_blocks_recompute) {
  const JobSpec job = parse_job_spec(std::string(kTrained) + "parallel: {pipeline: 1}\n").value();
  PlannedStep step;
  step.choice = {"1f1b", 1};
  step.partition.boundaries = {0, 12};
  step.partition.recomputed = {0, 3, 11};
  EXPECT_THAT(planned_job(job, step).recompute, ElementsAre(2));
  EXPECT_THAT(job_fragment(planned_job(job, step)), HasSubstr("recompute: [2]\n"));
}

}  // namespace
}  // namespace penstock::plan
