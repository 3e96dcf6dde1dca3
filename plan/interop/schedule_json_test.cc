#include "plan/interop/schedule_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

ScheduleReport report_of(const ScheduleRequest& request, const std::string& costs = "1,1,1",
                         Timeline timeline = Timeline::Earliest) {
  StatusOr<ComputeProgram> program = generate(request);
  EXPECT_TRUE(program.ok()) << program.status();
  StatusOr<UniformCosts> parsed = parse_uniform_costs(costs);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  StatusOr<ScheduleReport> report = make_report(
      *program, {.costs = {parsed->scale, parsed->for_stages(program->stages())}, .timeline = timeline});
  EXPECT_TRUE(report.ok()) << report.status();
  return *report;
}

// A whole small program; tests change one thing in it.
Json small() {
  return Json::parse(R"({"ranks": 2, "microbatches": 1, "stages_per_rank": 1, "placement": [0, [1]],
                         "actions": [["0F0", "0B0"], ["1F0", "1B0"]]})");
}

std::string refusal(const Json& json) {
  const StatusOr<ComputeProgram> program = program_from_json(json.dump(), "x.json");
  EXPECT_EQ(program.status().code(), StatusCode::kInvalidArgument);
  return program.ok() ? "accepted" : message(program.status());
}

std::string refusal_with(const std::string& field, const Json& value) {
  Json json = small();
  json[field] = value;
  return refusal(json);
}

TEST(ScheduleToJson, holds_every_figure_of_the_design_in_its_order) {
  const std::string text = schedule_to_json(
      report_of({.name = "interleaved-1f1b", .ranks = 4, .microbatches = 8, .stages_per_rank = 2}, "1,1,1",
                Timeline::Aligned));
  const auto json = nlohmann::ordered_json::parse(text);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"schedule",
                                             "ranks",
                                             "microbatches",
                                             "stages_per_rank",
                                             "placement",
                                             "actions",
                                             "slots",
                                             "empty_slots",
                                             "makespan",
                                             "max_stage_span",
                                             "bubble_fraction",
                                             "stage_bubble_rate",
                                             "idle_total",
                                             "peak_activations",
                                             "peak_activations_released_at_input_gradient",
                                             "payload_slots",
                                             "transfers",
                                             "handoffs",
                                             "loss_rank",
                                             "timeline",
                                             "bubble_to_busy",
                                             "idle"}));
  EXPECT_EQ(json["slots"], 57);
  EXPECT_EQ(json["empty_slots"], 36);
  EXPECT_EQ(json["makespan"], 57);
  EXPECT_DOUBLE_EQ(json["bubble_fraction"].get<double>(), 36.0 / 228);
  EXPECT_EQ(json["peak_activations"], Json({11, 9, 7, 5}));
  EXPECT_EQ(json["payload_slots"], Json({8, 8, 7, 5, 4, 4, 3, 1}));
  EXPECT_EQ(json["placement"], Json::parse("[[0],[1],[2],[3],[0],[1],[2],[3]]"));
  EXPECT_EQ(json["transfers"].dump(), R"({"forward":56,"backward":56})");
  EXPECT_EQ(json["handoffs"].dump(), R"({"local":0,"hidden":59,"exposed":53})");
  EXPECT_EQ(json["loss_rank"], 3);
  EXPECT_EQ(json["timeline"], "aligned");
}

TEST(ScheduleToJson, times_come_back_in_the_users_unit_exactly) {
  // Three microbatches of (0.1 + 0.1 + 0.1) on one rank are 0.9, not 0.8999999999999999.
  const auto json = Json::parse(
      schedule_to_json(report_of({.name = "gpipe", .ranks = 1, .microbatches = 3}, "0.1,0.1,0.1")));
  EXPECT_EQ(json["makespan"].dump(), "0.9");
  EXPECT_EQ(json["idle_total"].dump(), "0");
  EXPECT_EQ(json["slots"], 9);
}

TEST(ScheduleToJson, where_the_aligned_timeline_does_not_apply_the_earliest_one_is_shown_and_said) {
  const ScheduleReport report =
      report_of({.name = "1f1b", .ranks = 4, .microbatches = 2}, "1,1,1", Timeline::Aligned);
  EXPECT_NE(report.timeline_note, "");
  EXPECT_EQ(Json::parse(schedule_to_json(report))["timeline"], "earliest");
  EXPECT_EQ(report.slots, 15);  // (m + P - 1)(F + B)
}

TEST(ProgramFromJson, what_schedule_prints_reads_back_as_the_same_program) {
  for (const char* name : {"naive", "gpipe", "1f1b"}) {
    const ScheduleReport report = report_of({.name = name, .ranks = 3, .microbatches = 5});
    const StatusOr<ComputeProgram> program = program_from_json(schedule_to_json(report), "x.json");
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->schedule, "file:x.json");
    EXPECT_EQ(program->ranks, 3);
    EXPECT_EQ(program->microbatches, 5);
    EXPECT_EQ(program->placement, report.program.placement);
    EXPECT_EQ(program->actions, report.program.actions);
    EXPECT_TRUE(program->replica_of.empty());
  }
}

TEST(ProgramFromJson, five_fields_suffice_and_others_are_ignored) {
  Json json = small();
  json["slots"] = "not looked at";
  json["note"] = {{"nested", Json::array({1, 2})}};
  const StatusOr<ComputeProgram> program = program_from_json(json.dump(), "x.json");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->stages(), 2);
  EXPECT_EQ(program->rank_of(StageIndex(1), MicrobatchIndex(0)), RankIndex(1));
  EXPECT_EQ(to_string(program->actions[1][1]), "1B0");
}

TEST(ProgramFromJson, the_replica_of_a_microbatch_is_read_off_the_actions) {
  // Two stages on two ranks each: microbatch 0 flows down, microbatch 1 up.
  Json json = small();
  json["microbatches"] = 2;
  json["placement"] = Json::parse("[[0, 1], [1, 0]]");
  json["actions"] = Json::parse(R"([["0F0", "1F1", "1B1", "0B0"], ["0F1", "1F0", "1B0", "0B1"]])");
  const StatusOr<ComputeProgram> program = program_from_json(json.dump(), "x.json");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->replica_of, (std::vector<int>{0, 1}));
  EXPECT_EQ(program->rank_of(StageIndex(1), MicrobatchIndex(1)), RankIndex(0));
}

TEST(ProgramFromJson, forward_only_programs_and_several_updates_come_back) {
  Json json = small();
  json["forward_only"] = true;
  json["updates"] = 2;
  json["actions"] = Json::parse(R"([["0F0", "0F1"], ["1F0", "1F1"]])");
  const StatusOr<ComputeProgram> program = program_from_json(json.dump(), "x.json");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->forward_only);
  EXPECT_EQ(program->total_microbatches(), 2);
}

TEST(ProgramFromJson, every_refusal_names_the_path_and_the_place) {
  EXPECT_EQ(refusal_with("ranks", 0), "x.json: ranks: expected an integer from 1 to 65536, found 0");
  EXPECT_EQ(refusal_with("ranks", 2.0), "x.json: ranks: expected an integer from 1 to 65536, found 2.0");
  EXPECT_EQ(refusal_with("ranks", "2"), "x.json: ranks: expected an integer from 1 to 65536, found \"2\"");
  EXPECT_EQ(refusal_with("ranks", nullptr), "x.json: ranks: expected an integer from 1 to 65536, found null");
  EXPECT_THAT(refusal_with("microbatches", uint64_t{1} << 63), HasSubstr("x.json: microbatches: expected"));
  EXPECT_THAT(refusal_with("stages_per_rank", -1), HasSubstr("x.json: stages_per_rank: expected"));
  EXPECT_EQ(refusal_with("placement", Json::array({0})),
            "x.json: placement: expected a list of 2 entries, one a stage, found array of 1");
  EXPECT_EQ(refusal_with("placement", Json::array({0, 2})),
            "x.json: placement[1]: expected an integer from 0 to 1, found 2");
  EXPECT_THAT(refusal_with("placement", Json::parse("[0, []]")),
              HasSubstr("placement[1]: expected a rank, or"));
  EXPECT_THAT(refusal_with("placement", Json::parse("[0, [1, 1]]")), HasSubstr("two different ranks"));
  EXPECT_EQ(refusal_with("actions", "0F0"),
            "x.json: actions: expected a list of 2 entries, one a rank, found \"0F0\"");
  EXPECT_EQ(refusal_with("actions", Json::parse(R"([["0F0"], 3])")),
            "x.json: actions[1]: expected a list of actions, found 3");
  EXPECT_EQ(refusal_with("actions", Json::parse(R"([["0F0", 3], []])")),
            "x.json: actions[0][1]: expected text such as \"0F1\", found 3");
  EXPECT_EQ(refusal_with("actions", Json::parse(R"([["0F0", "2B0"], []])")),
            "x.json: actions[0][1]: 2B0: expected a stage below 2");
  EXPECT_EQ(refusal_with("actions", Json::parse(R"json([[], ["O(1F0;1B1)"]])json")),
            "x.json: actions[1][0]: 1B1: expected a microbatch below 1");
  EXPECT_THAT(refusal_with("forward_only", 1), HasSubstr("forward_only: expected true or false, found 1"));
  EXPECT_THAT(refusal(Json::array()), HasSubstr("x.json: expected a JSON object"));
  EXPECT_EQ(refusal(Json::object()), "x.json: ranks: missing");
}

TEST(ProgramFromJson, an_action_must_match_the_grammar_as_a_whole) {
  // Readers that look at the beginning only take "0F1.5" for 0F1, and train something else.
  for (const char* text : {"0F0xyz", "0F0.5", " 0F0", "0F0 ", "0f0", "-1F0", "F0", "0F", "", "O(0F0)",
                           "O(0F0,0B0)", "99999999999F0"}) {
    EXPECT_THAT(refusal_with("actions", Json{{text}, Json::array()}), HasSubstr("x.json: actions[0][0]: "))
        << text;
  }
}

TEST(ProgramFromJson, text_that_is_no_json_is_refused) {
  for (const char* text : {"", "{", "nonsense", "[1", "{\"ranks\": 01}", "\xff\xfe", "{} {}"}) {
    const StatusOr<ComputeProgram> program = program_from_json(text, "x.json");
    EXPECT_EQ(program.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(message(program.status()), HasSubstr("x.json: ")) << text;
  }
}

TEST(ProgramFromJson, a_field_given_twice_is_refused) {
  std::string text = small().dump();
  text.insert(1, "\"ranks\": 2, ");
  const StatusOr<ComputeProgram> program = program_from_json(text, "x.json");
  EXPECT_EQ(message(program.status()), "x.json: \"ranks\": given twice");
}

TEST(ProgramFromJson, deep_nesting_does_not_exhaust_the_stack) {
  const std::string deep(1 << 20, '[');
  EXPECT_EQ(program_from_json(deep, "x.json").status().code(), StatusCode::kInvalidArgument);
  const std::string closed = "{\"ranks\": " + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}";
  EXPECT_EQ(program_from_json(closed, "x.json").status().code(), StatusCode::kInvalidArgument);
}

TEST(ProgramFromJson, sizes_are_bounded_before_anything_is_made) {
  Json json = small();
  json["ranks"] = 65536;
  json["stages_per_rank"] = 1024;
  EXPECT_THAT(refusal(json), HasSubstr("expected at most 1048576 stages"));
  json["stages_per_rank"] = 1;
  json["microbatches"] = 65536;
  json["updates"] = 65536;
  EXPECT_THAT(refusal(json), HasSubstr("microbatches x updates: expected at most"));
}

TEST(VerdictToJson, says_what_is_wrong_and_where) {
  Verdict verdict;
  verdict.violations.push_back({"order", RankIndex(2), 7, "2B3", "expected 2F3 before it"});
  verdict.violations.push_back({"complete", RankIndex(), -1, "", "1F0: found twice"});
  const auto json = nlohmann::ordered_json::parse(verdict_to_json(verdict));
  EXPECT_EQ(json["valid"], false);
  // A program that may not run has no figures.
  EXPECT_FALSE(json.contains("bit_identical") || json.contains("payload_slots"));
  EXPECT_EQ(json["violations"][0].dump(),
            R"({"rule":"order","rank":2,"position":7,"action":"2B3","message":"expected 2F3 before it"})");
  EXPECT_EQ(json["violations"][1].dump(),
            R"({"rule":"complete","rank":null,"position":null,"action":null,"message":"1F0: found twice"})");
}

TEST(VerdictToJson, a_valid_program_reports_its_slots) {
  Verdict verdict;
  verdict.bit_identical = true;
  verdict.high_water = {2, 1};
  const auto json = Json::parse(verdict_to_json(verdict));
  EXPECT_EQ(
      json,
      Json::parse(R"({"valid": true, "bit_identical": true, "payload_slots": [2, 1], "violations": []})"));
}

}  // namespace
}  // namespace penstock::plan
