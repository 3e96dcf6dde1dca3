// The planning commands of the built binary, without a coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "client/main/testing/built_binary.h"

namespace penstock::client {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using testing::Ran;

class Planning : public testing::BuiltBinary {
 protected:
  Planning() : BuiltBinary(PENSTOCK_BINARY_DIR "/bin/penstock") {}
};

constexpr const char* kFourLayers =
    R"({"layers": [{"name": "embedding", "time_ms": 1, "activation_bytes": 10, "static_bytes": 100},
                   {"name": "block.0", "time_ms": 4, "activation_bytes": 10, "static_bytes": 100},
                   {"name": "block.1", "time_ms": 4, "activation_bytes": 10, "static_bytes": 100,
                    "recompute": {"time_ms": 5.5, "activation_bytes": 1}},
                   {"name": "head", "time_ms": 7, "activation_bytes": 10, "static_bytes": 100}]})";

TEST_F(Planning, layers_are_cut_into_stages) {
  write("costs.json", kFourLayers);
  const Ran ran = penstock("partition costs.json -p 2 -o json");
  ASSERT_EQ(ran.exit_code, 0) << ran.error;
  const Json json = Json::parse(ran.out);
  EXPECT_EQ(json["split"], Json({0, 3, 4}));
  EXPECT_EQ(json["stage_ms"], Json({9, 7}));
  EXPECT_EQ(json["slowest_ms"], 9);
  EXPECT_EQ(json["peak_bytes"], Json({360, 110}));  // two microbatches in flight, then one
  EXPECT_EQ(json["recomputed"], Json({0, 0}));

  const Json tight = Json::parse(penstock("partition costs.json -p 2 --memory-budget 345 -o json").out);
  EXPECT_EQ(tight["recomputed"], Json({1, 0}));
  EXPECT_EQ(tight["recomputed_layers"], Json({"block.1"}));
  EXPECT_EQ(tight["slowest_ms"], 10.5);

  const Json chunks = Json::parse(penstock("partition costs.json -p 2 -s 2 --placement v -o json").out);
  EXPECT_EQ(chunks["chunks"], Json::parse("[[0, 1], [1, 2], [2, 3], [3, 4]]"));
  EXPECT_EQ(chunks["rank_ms"], Json({8, 8}));

  const Ran table = penstock("partition costs.json -p 2");
  EXPECT_THAT(table.out, HasSubstr("embedding to block.1"));
  EXPECT_THAT(table.out, HasSubstr("slowest rank 9ms"));
}

TEST_F(Planning, a_split_that_does_not_fit_is_answered_with_the_budget_that_works) {
  write("costs.json", kFourLayers);
  const Ran text = penstock("partition costs.json -p 2 --memory-budget 200");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.error, HasSubstr("the smallest budget that works is 240 bytes"));
  const Ran machine = penstock("partition costs.json -p 2 --memory-budget 200 -o json");
  EXPECT_EQ(machine.exit_code, 1);
  EXPECT_EQ(Json::parse(machine.out)["feasible"], false);
  EXPECT_EQ(Json::parse(machine.out)["smallest_budget_bytes"], 240);
  EXPECT_EQ(penstock("partition costs.json -p 2 --memory-budget 240").exit_code, 0);
}

TEST_F(Planning, ranks_have_budgets_of_their_own) {
  write("costs.json", kFourLayers);
  const Json first = Json::parse(penstock("partition costs.json -p 2 --memory-budget 240B,1KB -o json").out);
  EXPECT_EQ(first["split"], Json({0, 2, 4}));
  EXPECT_EQ(first["peak_bytes"], Json({240, 220}));
  const Ran misfit = penstock("partition costs.json -p 2 --memory-budget 200,100");
  EXPECT_EQ(misfit.exit_code, 1);
  EXPECT_THAT(misfit.error, HasSubstr("fits into 200,100; every rank needs 111 bytes (111B) more"));
  EXPECT_THAT(penstock("partition costs.json -p 2 --memory-budget 1,2,3").error,
              HasSubstr("memory budget: expected one for all ranks, or 2, one a rank; found 3"));
}

TEST_F(Planning, costs_with_a_mistake_are_refused_with_their_place) {
  const auto refused = [&](const std::string& costs, const std::string& options, const std::string& why) {
    write("costs.json", costs);
    const Ran ran = penstock("partition costs.json " + options);
    EXPECT_EQ(ran.exit_code, 2) << why;
    EXPECT_THAT(ran.error, HasSubstr(why));
  };
  refused("{", "-p 2", "costs.json: ");
  refused("{}", "-p 2", "costs.json: layers: missing");
  refused(R"({"layers": [{"time_ms": -1}]})", "-p 1", "costs.json: layers[0].time_ms: expected milliseconds");
  refused(R"({"layers": [{"time_ms": 1, "recompute": {}}]})", "-p 1", "layers[0].recompute.time_ms: missing");
  refused(R"({"layers": [{"time_ms": 1}]})", "-p 2",
          "layers: expected at least one for each of 2 stages, found 1");
  refused(R"({"layers": [{"time_ms": 1}], "worker_speed": [0]})", "-p 1",
          "worker_speed: expected 0.01 to 100");
  refused(kFourLayers, "-p 2 --schedule gpipe", "-m: missing; what gpipe holds depends on it");
  refused(kFourLayers, "-p 2 -m 4 --schedule zb-v", "--schedule: zb-v puts 2 stages on a rank");
  refused(kFourLayers, "-p 2 --placement v", "--placement: v puts two stages on a rank; add -s 2");
}

constexpr const char* kPlannedJob =
    "name: planned\n"
    "model: {vocab_size: 32000, hidden_size: 64, num_hidden_layers: 8, num_attention_heads: 2, "
    "intermediate_size: 64,\n  max_position_embeddings: 32}\n"
    "data: {source: text.txt, sequence_length: 32}\n"
    "train: {steps: 10, global_batch_size: 16, microbatch_size: 2}\n"
    "parallel: {pipeline: 2, schedule: 1f1b}\n";

// A head that is worth six blocks: what is fitted goes into the plan, and what is planned into a job file that is accepted.
TEST_F(Planning, a_job_is_planned_from_a_profile) {
  write("job.yaml", kPlannedJob);
  write("measured.json",
        R"({"stages": [{"layers": {"embedding": 1, "block": 4}, "forward_ms": 9, "backward_ms": 17},
                                        {"layers": {"block": 4}, "forward_ms": 8, "backward_ms": 16},
                                        {"layers": {"block": 4, "head": 1}, "forward_ms": 20, "backward_ms": 40}]})");
  write("fitted.json", penstock("fit measured.json -o json").out);
  const std::string command = "plan job.yaml --profile fitted.json";
  const Ran machine = penstock(command + " -o json");
  ASSERT_EQ(machine.exit_code, 0) << machine.error;
  const Json json = Json::parse(machine.out);
  const Json& best = json["plans"][0];
  EXPECT_EQ(json["microbatches"], 8);
  EXPECT_GT(best["peak_bytes"][0], 0);  // predicted from the job
  EXPECT_LT(best["step_ms"], json["baselines"]["uniform"]["step_ms"]);
  for (const Json& plan : json["plans"]) EXPECT_LE(best["step_ms"], plan["step_ms"]);

  const Ran table = penstock(command);
  EXPECT_THAT(table.out, HasSubstr("1f1b, uniform"));
  EXPECT_THAT(table.out, HasSubstr("parallel: {pipeline: 2"));

  const std::string fragment = penstock(command + " -o job").out;
  const std::string job = kPlannedJob;
  write("planned.yaml", job.substr(0, job.find("parallel:")) + fragment);
  const Ran checked = penstock("submit planned.yaml --dry-run --coordinator 127.0.0.1:1");
  EXPECT_EQ(checked.exit_code, 0) << checked.error << fragment;
  EXPECT_THAT(checked.out, HasSubstr("  most memory: rank "));

  const Ran layout = penstock(command + " -o megatron-layout");
  if (best["placement"] == "loop") {
    EXPECT_EQ(layout.out.substr(0, 2), "Et");
  } else {
    EXPECT_EQ(layout.exit_code, 1);
  }
  EXPECT_EQ(Json::parse(penstock(command + " -o torchtitan").out).size(),
            static_cast<size_t>(2 * best["stages_per_rank"].get<int>()));
}

TEST_F(Planning, what_recomputes_to_fit_goes_into_a_job_file_and_is_checked_for_what_was_planned) {
  std::string job = kPlannedJob;
  job.replace(job.find("32000"), 5, "256");  // activations are then what fills a rank
  write("job.yaml", job);
  write("types.json", R"({"types": {"embedding": {"forward_ms": 1, "backward_ms": 1},
      "block": {"forward_ms": 4, "backward_ms": 8}, "head": {"forward_ms": 4, "backward_ms": 4}}})");
  const std::string command = "plan job.yaml --profile types.json -o job";
  const std::string refusal = penstock(command + " --memory-budget 1KB").error;
  const std::string least = "the smallest budget that works is ";
  ASSERT_THAT(refusal, HasSubstr(least));
  const auto budget = std::to_string(std::stoll(refusal.substr(refusal.find(least) + least.size())));

  const std::string fragment = penstock(command + " --memory-budget " + budget).out;
  EXPECT_THAT(fragment, HasSubstr("\nrecompute: ["));
  write("planned.yaml", job.substr(0, job.find("parallel:")) + fragment + "memory_budget: " + budget + "\n");
  const Ran checked = penstock("submit planned.yaml --dry-run --coordinator 127.0.0.1:1");
  EXPECT_EQ(checked.exit_code, 0) << checked.error << fragment;
  const auto rest_of_line = [](const std::string& text, const std::string& before) {
    const size_t begin = text.find(before) + before.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(rest_of_line(checked.out, "  most memory: "), rest_of_line(fragment, "# memory: "));
}

TEST_F(Planning, a_plan_that_cannot_be_made_says_why) {
  write("job.yaml", kPlannedJob);
  write("costs.json", kFourLayers);
  const auto fails = [&](const std::string& options, int exit_code, const std::string& why) {
    const Ran ran = penstock("plan job.yaml " + options);
    EXPECT_EQ(ran.exit_code, exit_code) << options;
    EXPECT_THAT(ran.error, HasSubstr(why)) << options;
  };
  fails("--profile missing.json", 1, "--profile: missing.json: no such file, nor a name that a job can have");
  fails("--profile costs.json --device-flops 1T", 2, "--profile: expected costs, or --device-flops");
  fails("--device-flops fast", 2,
        "--device-flops: expected a number with an optional unit, as 100G, found fast");
  fails("--profile costs.json", 2,
        "costs.json: layers: expected 10, the embedding, 8 blocks and the head of this job, found 4");
  write("types.json", R"({"types": {"block": {"forward_ms": 1, "backward_ms": 2}}})");
  fails("--profile types.json", 2, "types.json: types.embedding: missing");
  write("types.json",
        R"({"types": {"embedding": {"forward_ms": 1, "backward_ms": 2}, "block": {"forward_ms": 1,
                          "backward_ms": 2}, "head": {"forward_ms": {"fixed_ms": 1, "per_token_ms": 0.01}, "backward_ms": 2}}})");
  fails("--profile types.json --memory-budget 1KB", 1, "no plan fits; the smallest budget that works is ");
}

TEST_F(Planning, costs_of_types_come_from_whole_stages) {
  write("measured.json",
        R"({"stages": [{"layers": {"embedding": 1, "block": 4}, "forward_ms": 9, "backward_ms": 17},
                                        {"layers": {"block": 4}, "forward_ms": 8, "backward_ms": 16},
                                        {"layers": {"block": 4, "head": 1}, "forward_ms": 13, "backward_ms": 26}],
                             "predict": [{"layers": {"block": 3, "head": 1}}, {"layers": {"embedding": 1}}]})");
  const Ran ran = penstock("fit measured.json -o json");
  ASSERT_EQ(ran.exit_code, 0) << ran.error;
  const Json json = Json::parse(ran.out);
  EXPECT_NEAR(json["types"]["block"]["forward_ms"], 2, 1e-9);
  EXPECT_NEAR(json["types"]["head"]["backward_ms"], 10, 1e-9);
  EXPECT_NEAR(json["predicted"][0]["forward_ms"], 11, 1e-9);
  EXPECT_NEAR(json["predicted"][1]["backward_ms"], 1, 1e-9);
  EXPECT_NEAR(json["residual"]["max_percent"], 0, 1e-9);
  EXPECT_THAT(penstock("fit measured.json").out, HasSubstr("block"));

  write("measured.json", R"({"stages": [{"layers": {"block": 1.5}, "forward_ms": 1, "backward_ms": 1}]})");
  const Ran refused = penstock("fit measured.json");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.error, HasSubstr("measured.json: stages[0].layers.block: expected a count"));
}

TEST_F(Planning, a_trace_is_diagnosed) {
  const auto cell = [](double ms) { return Json({{"7", {ms, ms * 1.01}}, {"9", {ms * 0.99, ms}}}); };
  Json raw;
  for (const int replica : {0, 1}) {
    for (const int stage : {0, 1, 2}) {
      const std::string name = "dp" + std::to_string(replica) + "_stage" + std::to_string(stage);
      raw[name + "_F"] = cell(stage == 2 ? 20 : 10);
      raw[name + "_B"] = cell(stage == 2 ? 35 : 20);
    }
  }
  write("trace.json", Json({{"traces", {{"mine", {{"raw_ms", raw}}}}}}).dump());
  const Ran ran = penstock("diagnose --trace trace.json -o json");
  ASSERT_EQ(ran.exit_code, 0) << ran.error;
  EXPECT_EQ(Json::parse(ran.out)["verdict"], "imbalance");
  EXPECT_EQ(Json::parse(ran.out)["where"]["stage"], 2);
  EXPECT_NEAR(Json::parse(ran.out)["evidence"]["stage_factor"][2], 55.0 / 30, 1e-6);
  const Ran text = penstock("diagnose --trace trace.json");
  EXPECT_THAT(text.out, HasSubstr("imbalance: stage 2 takes 1.83 times the median of the others"));

  raw.erase("dp1_stage1_B");
  write("trace.json", Json({{"raw_ms", raw}}).dump());
  const Ran refused = penstock("diagnose --trace trace.json");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.error,
              HasSubstr("trace.json: raw_ms: stage 1 replica 1: expected as many forwards as backwards"));
  EXPECT_EQ(penstock("diagnose").exit_code, 2);
  EXPECT_THAT(penstock("diagnose somejob --trace trace.json").error, HasSubstr("expected a job, or --trace"));
}

// --- plans without a profile.

constexpr const char* kHuggingFaceConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 12, "vocab_size": 8192, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
    "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": false})";

TEST_F(Planning, a_model_is_planned_from_its_config_and_says_that_rates_are_no_measurements) {
  write("config.json", kHuggingFaceConfig);
  const std::string command =
      "plan --from-config config.json -p 4 --global-batch-size 16 --sequence-length 256 --device-flops 10T "
      "--device-bandwidth 500GB";
  const Ran machine = penstock(command + " -o json");
  ASSERT_EQ(machine.exit_code, 0) << machine.error;
  const Json json = Json::parse(machine.out);
  EXPECT_EQ(json["costs"]["source"], "rates of 10 TFLOP/s and 500 GB/s, not measurements");
  EXPECT_EQ(json["costs"]["measured"], false);
  EXPECT_EQ(json["costs"]["error_percent"], 4.0);
  EXPECT_EQ(json["microbatches"], 16);
  EXPECT_LT(json["plans"][0]["step_ms"], json["baselines"]["uniform"]["step_ms"]);
  // The head of 8,192 words is worth more than two blocks of 256: its stage has fewer of them.
  const auto blocks_of = [](const Json& stage) { return stage.size(); };
  for (const Json& plan : json["plans"]) {
    if (plan["schedule"] != "1f1b") continue;
    EXPECT_LT(blocks_of(plan["split"][3]), blocks_of(plan["split"][1]));
  }
  const Ran table = penstock(command);
  EXPECT_THAT(
      table.out,
      HasSubstr("costs: rates of 10 TFLOP/s and 500 GB/s, not measurements; steps are as long as these rates say, "
                "ratios between them may be off by 4.0 %\n"));
  // Of a folder too, and the split goes into a Megatron layout.
  EXPECT_EQ(
      penstock("plan --from-config . -p 4 --global-batch-size 16 --sequence-length 256 -o megatron-layout")
          .exit_code,
      0);
}

TEST_F(Planning, sizes_of_microbatch_are_compared_where_the_job_leaves_them_free) {
  write("config.json", kHuggingFaceConfig);
  const std::string command =
      "plan --from-config config.json -p 4 --global-batch-size 8 --microbatch-size auto --sequence-length 64";
  const Json json = Json::parse(penstock(command + " -o json").out);
  ASSERT_EQ(json["microbatch_sizes"].size(), 4u);  // 1, 2, 4, 8
  EXPECT_EQ(json["microbatch_sizes"][0]["microbatch_size"], json["microbatch_size"]);
  EXPECT_EQ(json["microbatch_sizes"][0]["step_ms"], json["plans"][0]["step_ms"]);
  for (size_t i = 1; i < 4; ++i)
    EXPECT_GE(json["microbatch_sizes"][i]["step_ms"], json["microbatch_sizes"][i - 1]["step_ms"]);
  const Ran table = penstock(command);
  EXPECT_THAT(table.out, HasSubstr("MICROBATCH SIZE"));
  EXPECT_THAT(table.out, HasSubstr("# train: microbatch_size: "));
}

TEST_F(Planning, a_config_without_its_shape_is_refused_with_the_option) {
  write("config.json", kHuggingFaceConfig);
  write("job.yaml", kPlannedJob);
  const auto refused = [&](const std::string& options, const std::string& why) {
    const Ran ran = penstock("plan " + options);
    EXPECT_EQ(ran.exit_code, 2) << options;
    EXPECT_THAT(ran.error, HasSubstr(why)) << options;
  };
  refused("", "expected a job file, or --from-config");
  refused("job.yaml --from-config config.json", "file excludes --from-config");
  // What the file says cannot be said twice.
  refused("job.yaml -p 4",
          "--pipeline goes with --from-config; a job file says it itself: write parallel.pipeline there");
  refused("job.yaml --dtype bfloat16", "write train.dtype there");
  refused("--from-config config.json", "--pipeline: missing");
  refused("--from-config config.json -p 4", "--global-batch-size: missing");
  refused("--from-config config.json -p 4 --global-batch-size 8", "--sequence-length: missing");
  refused("--from-config config.json -p 40 --global-batch-size 8 --sequence-length 64",
          "config.json is refused:\n  line 5: parallel.pipeline: expected at most 14 stages");
  refused("--from-config config.json -p 4 --global-batch-size 8 --sequence-length 64 --microbatch-size few",
          "few");
  std::string biased = kHuggingFaceConfig;
  biased.replace(biased.find("\"hidden_act\""), 0, "\"attention_bias\": true, ");
  write("config.json", biased);
  refused("--from-config config.json -p 4 --global-batch-size 8 --sequence-length 64",
          "config.json: attention_bias: ");
}

// --- what submit plans.

TEST_F(Planning, what_a_job_leaves_to_auto_is_planned_when_it_is_submitted) {
  std::string job = kPlannedJob;
  job.replace(job.find("microbatch_size: 2"), 18, "microbatch_size: auto");
  job.replace(job.find("schedule: 1f1b"), 14, "schedule: auto");
  write("job.yaml", job);
  const std::string dry_run = "submit job.yaml --dry-run --coordinator 127.0.0.1:1";
  const Ran ran = penstock(dry_run);
  ASSERT_EQ(ran.exit_code, 0) << ran.error;
  EXPECT_THAT(ran.out, HasSubstr("\n  schedule: auto is "));
  EXPECT_THAT(ran.out, HasSubstr("\n  microbatch_size: auto is "));
  EXPECT_THAT(ran.out, HasSubstr("\n  planned from rates of 100 GFLOP/s and 20 GB/s, not measurements\n"));

  write("types.json", R"({"types": {"embedding": {"forward_ms": 1, "backward_ms": 1},
      "block": {"forward_ms": 4, "backward_ms": 8}, "head": {"forward_ms": 4, "backward_ms": 4}}})");
  const Ran refused = penstock(dry_run + " --profile types.json");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.error,
              HasSubstr("job.yaml is refused:\n  train.microbatch_size: auto needs costs of any size of "
                        "microbatch, and types.json has times of one size"));
}

TEST_F(Planning, a_split_is_planned_from_a_profile_and_says_so) {
  write("job.yaml", kPlannedJob);
  const auto types = [](int head) {
    return R"({"types": {"embedding": {"forward_ms": 1, "backward_ms": 1}, "block": {"forward_ms": 4, "backward_ms": 8},
        "head": {"forward_ms": )" +
           std::to_string(head) + R"(, "backward_ms": 4}}})";
  };
  const std::string dry_run = "submit job.yaml --dry-run --coordinator 127.0.0.1:1 --profile types.json";
  write("types.json", types(50));
  const Ran moved = penstock(dry_run);
  EXPECT_THAT(moved.out, HasSubstr("  split: auto is planned from types.json: a step of "));
  EXPECT_THAT(moved.out, HasSubstr("  stage 1: 6 7 head\n")) << moved.out;
  write("types.json", types(1));
  EXPECT_THAT(penstock(dry_run).out,
              HasSubstr("  --profile changes nothing: no field is auto, or no split beats equal "
                        "counts by types.json\n"));
}

}  // namespace
}  // namespace penstock::client
