// The built binary, for the commands that need no coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace penstock::client {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

struct Ran {
  int exit_code = -1;
  std::string out;
  std::string error;
};

class Offline : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "penstock_offline_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string contents(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  Ran penstock(const std::string& arguments, const std::string& output = "out.txt") const {
    const std::string command = "cd '" + folder_ + "' && '" PENSTOCK_BINARY_DIR "/bin/penstock' " +
                                arguments + " > " + output + " 2> error.txt < /dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents("out.txt"), contents("error.txt")};
  }

 private:
  std::string folder_;
};

TEST_F(Offline, the_published_interleaved_schedule_has_its_published_figures) {
  const Ran ran = penstock("schedule interleaved-1f1b -p 4 -m 8 -s 2 --timeline aligned -o json");
  ASSERT_EQ(ran.exit_code, 0) << ran.error;
  EXPECT_EQ(ran.error, "");
  const Json json = Json::parse(ran.out);
  EXPECT_EQ(json["slots"], 57);
  EXPECT_EQ(json["empty_slots"], 36);
  EXPECT_EQ(json["peak_activations"], Json({11, 9, 7, 5}));
  EXPECT_EQ(json["payload_slots"], Json({8, 8, 7, 5, 4, 4, 3, 1}));
  EXPECT_EQ(json["loss_rank"], 3);
  EXPECT_EQ(json["handoffs"], Json::parse(R"({"local": 0, "hidden": 59, "exposed": 53})"));
}

TEST_F(Offline, what_schedule_prints_verify_accepts_and_schedule_reads_back) {
  write("mine.json", penstock("schedule 1f1b -p 3 -m 4 -o json").out);
  const Ran verified = penstock("verify mine.json");
  EXPECT_EQ(verified.exit_code, 0) << verified.error;
  EXPECT_THAT(verified.out, HasSubstr("mine.json: valid; payload slots 3,2,1"));

  const Ran again = penstock("schedule file:mine.json -o json");
  ASSERT_EQ(again.exit_code, 0) << again.error;
  EXPECT_EQ(Json::parse(again.out)["actions"], Json::parse(contents("mine.json"))["actions"]);
  EXPECT_EQ(Json::parse(again.out)["schedule"], "file:mine.json");
}

TEST_F(Offline, two_swapped_actions_are_refused_with_rank_position_action_and_rule) {
  Json json = Json::parse(penstock("schedule interleaved-1f1b -p 4 -m 8 -s 2 -o json").out);
  std::swap(json["actions"][3][4], json["actions"][3][5]);  // 7F0 and 7B0
  write("swapped.json", json.dump());

  const Ran text = penstock("verify swapped.json");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.error, HasSubstr("order"));
  EXPECT_THAT(text.error, HasSubstr("rank 3"));
  EXPECT_THAT(text.error, HasSubstr("7B0"));

  const Ran machine = penstock("verify swapped.json -o json");
  EXPECT_EQ(machine.exit_code, 1);
  const Json verdict = Json::parse(machine.out);
  EXPECT_EQ(verdict["valid"], false);
  EXPECT_FALSE(verdict.contains("payload_slots"));
  const Json& first = verdict["violations"][0];
  EXPECT_EQ(first["rule"], "order");
  EXPECT_EQ(first["rank"], 3);
  EXPECT_EQ(first["position"], 4);
  EXPECT_EQ(first["action"], "7B0");

  // What may not run is not drawn either.
  EXPECT_EQ(penstock("schedule file:swapped.json").exit_code, 2);
}

TEST_F(Offline, a_file_of_pytorch_is_told_by_its_content) {
  write("zbv.csv", penstock("schedule zb-v -p 2 -m 4 -o torch-csv").out);
  const Ran verified = penstock("verify zbv.csv");
  EXPECT_EQ(verified.exit_code, 0) << verified.error;
  EXPECT_EQ(penstock("schedule file:zbv.csv -o torch-csv").out, contents("zbv.csv"));

  write("comms.txt", penstock("schedule file:zbv.csv -o torch-csv-comms").out);
  EXPECT_EQ(penstock("verify comms.txt").exit_code, 0);
  EXPECT_EQ(penstock("verify comms.txt --format torch-csv").exit_code, 1);
}

TEST_F(Offline, a_wrong_file_of_pytorch_is_refused_with_rank_cell_and_action) {
  write("wrong.csv", "0F0,0B0,\n1F1,1B1\n");
  const Ran text = penstock("verify wrong.csv");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.error, HasSubstr("shape: rank 1 position 0 1F1: expected a microbatch of 0 to 0"));
  const Ran machine = penstock("verify wrong.csv -o json");
  EXPECT_EQ(machine.exit_code, 1);
  const Json first = Json::parse(machine.out)["violations"][0];
  EXPECT_EQ(first["rank"], 1);
  EXPECT_EQ(first["position"], 0);
  EXPECT_EQ(first["action"], "1F1");
  EXPECT_EQ(penstock("schedule file:wrong.csv").exit_code, 2);
}

TEST_F(Offline, layouts_go_both_ways) {
  const Ran shown = penstock("layout parse 'E|t*3|(t|)*5mL' -p 4");
  EXPECT_EQ(shown.exit_code, 0) << shown.error;
  EXPECT_THAT(shown.out,
              HasSubstr("8 stages on 4 ranks, 2 a rank: 8 decoder layers, 1 multi-token prediction layer\n"));
  EXPECT_THAT(shown.out, HasSubstr("    1      1   layers 0 to 2\n"));

  write("parts.json", penstock("layout format 'Et|tt|L' -o torchtitan").out);
  EXPECT_EQ(Json::parse(contents("parts.json"))[2], Json({"norm", "lm_head"}));
  EXPECT_EQ(penstock("layout format parts.json").out, "Et|tt|L\n");
  EXPECT_EQ(Json::parse(penstock("layout format parts.json -o split").out)[0], Json({"embedding", 0}));
  const Json whole = Json::parse(penstock("layout parse parts.json -p 3 -o json").out);
  EXPECT_EQ(whole["megatron"], "Et|tt|L");
  EXPECT_EQ(whole["num_layers"], 3);

  const Ran refused = penstock("layout parse 'E t|tL'");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.error, HasSubstr("layout: character 2: expected E, t, m, L or |, found a blank"));
  EXPECT_EQ(penstock("layout format 'E||t|L' -o split").exit_code, 2);
  EXPECT_EQ(penstock("layout").exit_code, 2);
}

TEST_F(Offline, costs_of_each_stage_are_read_from_a_file) {
  write("costs.json", R"([{"forward": 1, "input_gradient": 2, "weight_gradient": 3},
                          {"forward": 0.5, "input_gradient": 1.5, "weight_gradient": 2}])");
  const Ran ran = penstock("schedule naive -p 2 -m 1 --stage-costs costs.json");
  ASSERT_EQ(ran.exit_code, 0) << ran.error;
  EXPECT_THAT(ran.out, HasSubstr("makespan        10 "));

  const Ran wrong = penstock("schedule naive -p 3 -m 1 --stage-costs costs.json");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.error, HasSubstr("costs.json: stages: expected 3 entries, one a stage, found 2"));
  EXPECT_EQ(penstock("schedule naive -p 2 -m 1 --costs 1,1,1 --stage-costs costs.json").exit_code, 2);
}

TEST_F(Offline, a_file_that_is_no_program_is_invalid_and_named) {
  write("broken.json", "{\"ranks\": 2");
  const Ran broken = penstock("verify broken.json");
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.error, HasSubstr("broken.json: not JSON"));
  const Json verdict = Json::parse(penstock("verify broken.json -o json").out);
  EXPECT_EQ(verdict["valid"], false);
  EXPECT_EQ(verdict["violations"][0]["rule"], "format");
  const Ran missing = penstock("verify missing.json");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.error, HasSubstr("missing.json: cannot open it"));
}

TEST_F(Offline, without_a_terminal_the_drawing_still_has_a_bounded_width) {
  const Ran ran = penstock("schedule gpipe -p 2 -m 2");
  ASSERT_EQ(ran.exit_code, 0) << ran.error;
  EXPECT_THAT(ran.out, HasSubstr("rank 0 |0F0|0F1|"));
  EXPECT_THAT(ran.out, HasSubstr("makespan        9 "));
}

TEST_F(Offline, bad_requests_are_refused_with_the_field_and_exit_code_two) {
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Ran ran = penstock(arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments;
    EXPECT_THAT(ran.error, HasSubstr(why)) << arguments;
    EXPECT_EQ(ran.out, "") << arguments;
  };
  refused("schedule 1f1c -p 4 -m 8", "1f1b");
  refused("schedule 1f1b -m 8", "--pipeline");
  refused("schedule 1f1b -p 4", "--microbatches");
  refused("schedule 1f1b -p 0 -m 8", "ranks");
  refused("schedule 1f1b -p 4 -m 8 --costs 1,x,1", "x");
  refused("schedule 1f1b -p 4 -m 8 --nonsense", "--nonsense");
  refused("schedule 1f1b -p 4 -m 8 --memory-limit 4", "--memory-limit: only zb-auto and v-auto search");
  refused("schedule dualpipe -p 4 -m 8 -o torch-csv",
          "dualpipe as a PyTorch schedule: stages stand on two ranks");
  refused("schedule 1f1b -p 4 -m 8 -o png", "png not in {text,json,svg,perfetto,torch-csv,torch-csv-comms}");
  refused("scedule 1f1b", "unknown command scedule (did you mean schedule?)");
  refused("get", "kind is required; see `penstock get --help`");
}

constexpr const char* kFourLayers =
    R"({"layers": [{"name": "embedding", "time_ms": 1, "activation_bytes": 10, "static_bytes": 100},
                   {"name": "block.0", "time_ms": 4, "activation_bytes": 10, "static_bytes": 100},
                   {"name": "block.1", "time_ms": 4, "activation_bytes": 10, "static_bytes": 100,
                    "recompute": {"time_ms": 5.5, "activation_bytes": 1}},
                   {"name": "head", "time_ms": 7, "activation_bytes": 10, "static_bytes": 100}]})";

TEST_F(Offline, layers_are_cut_into_stages) {
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

TEST_F(Offline, a_split_that_does_not_fit_is_answered_with_the_budget_that_works) {
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

TEST_F(Offline, costs_with_a_mistake_are_refused_with_their_place) {
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
TEST_F(Offline, a_job_is_planned_from_a_profile) {
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

TEST_F(Offline, what_recomputes_to_fit_goes_into_a_job_file_and_is_checked_for_what_was_planned) {
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

TEST_F(Offline, a_plan_that_cannot_be_made_says_why) {
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

TEST_F(Offline, costs_of_types_come_from_whole_stages) {
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

TEST_F(Offline, a_trace_is_diagnosed) {
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
  EXPECT_THAT(text.out, HasSubstr("imbalance: stage 2 takes 1.83 times the median stage"));

  raw.erase("dp1_stage1_B");
  write("trace.json", Json({{"raw_ms", raw}}).dump());
  const Ran refused = penstock("diagnose --trace trace.json");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.error,
              HasSubstr("trace.json: stage 1 replica 1: expected as many forwards as backwards"));
  EXPECT_EQ(penstock("diagnose").exit_code, 2);
  EXPECT_THAT(penstock("diagnose somejob --trace trace.json").error, HasSubstr("expected a job, or --trace"));
}

TEST_F(Offline, every_command_helps_with_examples) {
  for (const char* command :
       {"up", "submit", "get", "describe", "watch", "logs", "cancel", "schedule", "verify", "partition",
        "plan", "fit", "curves", "rebalance", "diagnose", "layout", "layout parse", "layout format"}) {
    const Ran ran = penstock(std::string(command) + " --help");
    EXPECT_EQ(ran.exit_code, 0) << command;
    EXPECT_THAT(ran.out, HasSubstr("Examples:\n  penstock ")) << command;
  }
}

TEST_F(Offline, a_job_file_with_problems_is_refused_before_anybody_is_asked) {
  write("bad.yaml", "name: bad\nmodle: {}\n");
  const Ran ran = penstock("submit bad.yaml --coordinator 127.0.0.1:1");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.error, HasSubstr("bad.yaml is refused:\n  line 1: model: "));
  EXPECT_THAT(ran.error, HasSubstr("\n  line 2: modle: "));
}

TEST_F(Offline, a_job_may_bring_its_program_in_a_file) {
  const auto job = [](const std::string& file, int batch) {
    return "name: brought\n"
           "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, "
           "intermediate_size: 8,\n  max_position_embeddings: 8}\n"
           "data: {source: text.txt, sequence_length: 8}\n"
           "train: {steps: 1, global_batch_size: " +
           std::to_string(batch) + ", microbatch_size: 1}\nparallel: {pipeline: 2, schedule: file:" + file +
           "}\n";
  };
  const std::string dry_run = "submit job.yaml --dry-run --coordinator 127.0.0.1:1";
  write("mine.csv", penstock("schedule gpipe-lifo -p 2 -m 4 -o torch-csv").out);
  write("job.yaml", job("mine.csv", 4));
  const Ran checked = penstock(dry_run);
  EXPECT_EQ(checked.exit_code, 0) << checked.error;
  EXPECT_THAT(checked.out, HasSubstr("schedule file:mine.csv: 2 ranks, 2 stages, 4 microbatches"));

  const auto refused = [&](const std::string& file, int batch, const std::string& why) {
    write("job.yaml", job(file, batch));
    const Ran ran = penstock(dry_run);
    EXPECT_EQ(ran.exit_code, 2) << file;
    EXPECT_THAT(ran.error, HasSubstr(why));
  };
  refused("mine.csv", 5,
          "file:mine.csv does not run 5 microbatches of this job: complete: rank 0 0F4: is missing");
  refused("missing.csv", 4, "parallel.schedule: ");
  write("split.csv", penstock("schedule zb-h1 -p 2 -m 4 -o torch-csv").out);
  write("job.yaml", job("split.csv", 4));
  EXPECT_EQ(penstock(dry_run).exit_code, 0);
  write("wrong.csv", "0F0,0B0\n1B0,1F0\n");
  refused("wrong.csv", 1, "order: rank 1 position 0 1B0");
}

TEST_F(Offline, a_job_file_that_cannot_be_read_is_refused) {
  // A pipe that nobody writes to would be waited for without end.
  ASSERT_EQ(mkfifo(path("pipe.yaml").c_str(), 0600), 0);
  write("big.yaml", std::string((1 << 20) + 1, '#'));
  const auto refused = [&](const std::string& file, const std::string& why) {
    const Ran ran = penstock("submit " + file + " --coordinator 127.0.0.1:1");
    EXPECT_EQ(ran.exit_code, 2) << file;
    EXPECT_THAT(ran.error, HasSubstr(file + ": " + why));
  };
  refused("pipe.yaml", "expected a regular file, found a pipe");
  refused(".", "expected a regular file, found a directory");
  refused("missing.yaml", "cannot open it: No such file or directory");
  refused("big.yaml", "expected at most 1048576 bytes, found more");
}

TEST_F(Offline, the_shipped_rehearsal_comes_with_the_costs_that_it_names) {
  const Ran ran = penstock("submit '" PENSTOCK_SOURCE_DIR
                           "/deploy/jobs/rehearsal.yaml' --dry-run --coordinator 127.0.0.1:1");
  EXPECT_EQ(ran.exit_code, 0) << ran.error;
  EXPECT_THAT(ran.out, HasSubstr("job/rehearsal checked (dry run)"));
  EXPECT_THAT(ran.out, HasSubstr("16 ranks, 32 stages, 64 microbatches of 4096 tokens"));
}

TEST_F(Offline, up_ends_with_a_line_of_json_even_when_the_file_is_refused) {
  const Ran ran = penstock("up --run missing.yaml -o json");
  EXPECT_EQ(ran.exit_code, 2);
  const Json line = Json::parse(ran.out);
  EXPECT_TRUE(line["name"].is_null());
  EXPECT_EQ(line["state"], "refused");
  EXPECT_EQ(line["reason"], "missing.yaml: cannot open it: No such file or directory");
}

TEST_F(Offline, what_cannot_be_written_is_no_success) {
  // A full disk must not leave half a schedule behind that looks whole.
  for (const char* arguments : {"schedule gpipe -p 2 -m 2", "schedule gpipe -p 2 -m 2 -o json", "--help"}) {
    const Ran ran = penstock(arguments, "/dev/full");
    EXPECT_EQ(ran.exit_code, 1) << arguments;
    EXPECT_EQ(ran.error, "penstock: cannot write: No space left on device\n") << arguments;
  }
}

TEST_F(Offline, help_offers_only_what_is_built) {
  EXPECT_THAT(penstock("schedule --help").out,
              HasSubstr("{text,json,svg,perfetto,torch-csv,torch-csv-comms}"));
  EXPECT_THAT(penstock("up --help").out, HasSubstr("{cpu,emulated}"));
}

TEST_F(Offline, an_error_cannot_steer_the_terminal) {
  const Ran ran = penstock("verify 'a\x1b[2J.json'");
  EXPECT_THAT(ran.error, HasSubstr("penstock: a?[2J.json: cannot open it"));
}

TEST_F(Offline, an_absent_coordinator_is_named_with_what_to_do) {
  const Ran ran = penstock("get jobs --coordinator 127.0.0.1:1");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.error, HasSubstr("penstock: no coordinator answers at 127.0.0.1:1 "));
  EXPECT_THAT(ran.error, HasSubstr("penstock up"));
  EXPECT_EQ(penstock("get jobs --coordinator nonsense").exit_code, 2);
}

}  // namespace
}  // namespace penstock::client
