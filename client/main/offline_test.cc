// The built binary, for the commands that need no coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "client/main/testing/built_binary.h"

namespace penstock::client {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using testing::Ran;

class Offline : public testing::BuiltBinary {
 protected:
  Offline() : BuiltBinary(PENSTOCK_BINARY_DIR "/bin/penstock") {}
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

TEST_F(Offline, every_command_helps_with_examples) {
  for (const char* command :
       {"up",       "submit", "get",       "describe", "watch",        "logs",         "cancel",
        "schedule", "verify", "partition", "plan",     "fit",          "curves",       "rebalance",
        "diagnose", "drain",  "uncordon",  "layout",   "layout parse", "layout format"}) {
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
