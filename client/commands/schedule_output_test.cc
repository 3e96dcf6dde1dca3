#include "client/commands/schedule_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "client/commands/schedule_request.h"
#include "plan/generation/generate.h"
#include "plan/interop/schedule_json.h"
#include "plan/interop/torch_csv.h"
#include "plan/verification/verify.h"

namespace penstock::client {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

ScheduleOptions options_of(const std::string& name) {
  ScheduleOptions options;
  options.name = name;
  options.pipeline = 4;
  options.microbatches = 8;
  options.search_evaluations = 100;
  return options;
}

plan::ScheduleReport report_of(const ScheduleOptions& options) {
  StatusOr<plan::ScheduleReport> report = schedule_report(options);
  EXPECT_TRUE(report.ok()) << options.name << ": " << message(report.status());
  return *std::move(report);
}

std::string output_of(const plan::ScheduleReport& report, const std::string& format) {
  const StatusOr<std::string> output = schedule_output(report, format, 120);
  EXPECT_TRUE(output.ok()) << report.program.schedule << " as " << format << ": " << message(output.status());
  return output.ok() ? *output : "";
}

std::string refusal(ScheduleOptions options) {
  const StatusOr<plan::ScheduleReport> report = schedule_report(options);
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  return message(report.status());
}

// Stages on two ranks, or several versions of the weights: PyTorch's runtime has neither.
const std::set<std::string> kNotForTorch = {"chimera", "dualpipe", "pipedream", "pipedream-2bw"};

TEST(ScheduleOutput, every_name_of_the_design_is_there) {
  const std::vector<std::string> names = plan::all_schedule_names();
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         "naive", "gpipe", "gpipe-lifo", "1f1b", "interleaved-1f1b", "looped-bfs",
                         "looped-bfs-lifo", "1f1b-v", "zb-h1", "zb-h2", "zb-auto", "zb-v", "v-min", "v-half",
                         "v-auto", "dualpipe", "dualpipe-v", "chimera", "pipedream", "pipedream-2bw"));
}

TEST(ScheduleOutput, every_name_prints_every_format_that_can_express_it) {
  for (const std::string& name : plan::all_schedule_names()) {
    const plan::ScheduleReport report = report_of(options_of(name));
    EXPECT_TRUE(plan::verify(report.program).valid()) << name;
    EXPECT_THAT(output_of(report, "text"), HasSubstr(name + ": 4 ranks, ")) << name;
    EXPECT_THAT(output_of(report, "svg"), HasSubstr("<title>" + name + ": 4 ranks, ")) << name;

    const Json trace = Json::parse(output_of(report, "perfetto"));
    const auto slices = std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                                      [](const Json& event) { return event["ph"] == "X"; });
    size_t actions = 0;
    for (const auto& rank : report.program.actions) actions += rank.size();
    EXPECT_EQ(static_cast<size_t>(slices), actions) << name;

    const auto read = plan::program_from_json(output_of(report, "json"), "x.json");
    ASSERT_TRUE(read.ok()) << name << message(read.status());
    EXPECT_EQ(read->actions, report.program.actions) << name;

    for (const std::string format : {"torch-csv", "torch-csv-comms"}) {
      if (kNotForTorch.contains(name)) {
        const auto refused = schedule_output(report, format, 120);
        ASSERT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << name;
        EXPECT_THAT(message(refused.status()), HasSubstr(name + " as a PyTorch schedule: "));
        continue;
      }
      const plan::TorchImport import = plan::import_torch_csv(output_of(report, format), "x.csv");
      ASSERT_TRUE(import.violations.empty()) << name << import.violations.front().to_string();
      EXPECT_EQ(import.program.actions, report.program.actions) << name;
    }
  }
}

TEST(ScheduleOutput, bytes_and_fits_of_the_worked_example) {
  // 12 GB and 10 GB a forward under 80 GB: of interleaved-1f1b only rank 3 fits, of 1f1b-v all do.
  ScheduleOptions options = options_of("interleaved-1f1b");
  options.bytes_per_activation = "10GB";
  options.static_bytes = "12GB";
  options.memory_budget = "80GB";
  Json json = Json::parse(output_of(report_of(options), "json"));
  EXPECT_EQ(json["predicted_bytes"],
            Json({122'000'000'000, 102'000'000'000, 82'000'000'000, 62'000'000'000}));
  EXPECT_EQ(json["fits"], Json({false, false, false, true}));
  EXPECT_THAT(output_of(report_of(options), "text"), HasSubstr("122GB   no\n"));
  EXPECT_THAT(output_of(report_of(options), "svg"), HasSubstr("budget 80GB: 6.8 forwards"));

  options.name = "1f1b-v";
  json = Json::parse(output_of(report_of(options), "json"));
  EXPECT_EQ(json["predicted_bytes"], Json({72'000'000'000, 72'000'000'000, 72'000'000'000, 72'000'000'000}));
  EXPECT_EQ(json["fits"], Json({true, true, true, true}));
}

TEST(ScheduleOutput, figures_with_one_name_elsewhere_are_named_apart) {
  // 1f1b, P=4 m=8, F=1 B=2: idle/total (P-1)/(m+P-1), idle/useful (P-1)/m.
  const plan::ScheduleReport report = report_of(options_of("1f1b"));
  const std::string text = output_of(report, "text");
  EXPECT_THAT(text, HasSubstr("makespan        33 from the first action to the last, over all ranks\n"));
  EXPECT_THAT(text, HasSubstr("span            33 of the longest rank"));
  EXPECT_THAT(text, HasSubstr("idle/total      27.3% of ranks x makespan"));
  EXPECT_THAT(text, HasSubstr("idle/useful     37.5% of the time that ranks compute\n"));
  EXPECT_THAT(text, HasSubstr("HELD TO W"));
  EXPECT_THAT(text, HasSubstr("HELD TO I"));
  // zb-h2 has no bubble by span and the makespan of zb-h1.
  const Json json = Json::parse(output_of(report_of(options_of("zb-h2")), "json"));
  EXPECT_EQ(json["stage_bubble_rate"], 0);
  EXPECT_EQ(json["makespan"], 27);
  EXPECT_EQ(json["max_stage_span"], 24);
}

TEST(ScheduleOutput, a_search_says_how_far_from_optimal_it_can_be) {
  ScheduleOptions options = options_of("zb-auto");
  options.memory_limit = "4";
  const Json json = Json::parse(output_of(report_of(options), "json"));
  ASSERT_TRUE(json.contains("search"));
  EXPECT_EQ(json["search"]["max_stage_span"], json["max_stage_span"]);
  EXPECT_LE(json["search"]["bound"], json["search"]["max_stage_span"]);
  EXPECT_EQ(json["search"]["memory_limits"], Json({4, 4, 4, 4}));
  for (const Json& peak : json["search"]["memory_peaks"]) EXPECT_LE(peak, 4);

  // The zero-bubble papers' unit: half of a forward is left for W.
  options.memory_deltas = "1,-0.5,-0.5";
  options.memory_limit = "4,4,4,4.5";
  EXPECT_EQ(Json::parse(output_of(report_of(options), "json"))["search"]["memory_limits"],
            Json({4, 4, 4, 4.5}));
}

TEST(ScheduleOutput, transfers_take_the_time_of_their_bytes) {
  ScheduleOptions options = options_of("naive");
  options.microbatches = 1;
  options.bandwidth = "3MB";
  options.message_bytes = "1MB";
  // Six hand-overs of a third of a unit, each rounded up to a millionth: 12 + 6 x 0.333334.
  EXPECT_EQ(report_of(options).scale.to_text(report_of(options).simulation.makespan), "14.000004");
}

TEST(ScheduleOutput, posted_receives_slow_the_compute_beside_them_unless_they_are_one_sided) {
  ScheduleOptions options = options_of("1f1b");
  options.one_sided = true;
  const plan::Ticks free = report_of(options).simulation.makespan;
  options.contention = "2";
  EXPECT_EQ(report_of(options).simulation.makespan, free);
  options.one_sided = false;
  EXPECT_GT(report_of(options).simulation.makespan, free);
}

TEST(ScheduleRequest, bad_options_are_refused_by_name) {
  const auto with = [](auto change) {
    ScheduleOptions options = options_of("1f1b");
    change(options);
    return refusal(options);
  };
  EXPECT_THAT(with([](auto& o) { o.memory_limit = "4"; }),
              HasSubstr("--memory-limit: only zb-auto and v-auto"));
  EXPECT_THAT(with([](auto& o) { o.static_bytes = "1GB"; }), HasSubstr("--bytes-per-activation: missing"));
  EXPECT_THAT(with([](auto& o) { o.bytes_per_activation = "1.5GB"; }),
              HasSubstr("--bytes-per-activation: expected whole bytes"));
  EXPECT_THAT(with([](auto& o) { o.bandwidth = "1GB"; }), HasSubstr("--message-bytes: missing"));
  EXPECT_THAT(with([](auto& o) { o.message_bytes = "1GB"; }), HasSubstr("--bandwidth: missing"));
  for (const char* wrong : {"0.5", "x", "1/2/3", "4/4", "1.5/3", "101", "1.00001"}) {
    EXPECT_THAT(with([&](auto& o) { o.contention = wrong; }), HasSubstr("--contention: expected"));
  }
  EXPECT_THAT(with([](auto& o) { o.extra_warmup = "1,x"; }), HasSubstr("--extra-warmup: expected"));
  EXPECT_THAT(with([](auto& o) { o.one_sided = true, o.timeline = "aligned"; }), HasSubstr("--timeline"));
  EXPECT_THAT(with([](auto& o) { o.name = "zb-auto", o.memory_deltas = "1,-1"; }),
              HasSubstr("--memory-deltas: expected F,I,W, found 2 numbers"));
  EXPECT_THAT(with([](auto& o) { o.name = "zb-auto", o.memory_limit = "4,y"; }),
              HasSubstr("--memory-limit: 'y'"));
  EXPECT_THAT(with([](auto& o) { o.pipeline.reset(); }), HasSubstr("--pipeline: missing"));
}

TEST(ParseBytes, whole_numbers_with_units) {
  EXPECT_EQ(*parse_bytes("80GB", "x"), 80'000'000'000);
  EXPECT_EQ(*parse_bytes(" 512 MiB ", "x"), 512 << 20);
  EXPECT_EQ(*parse_bytes("7", "x"), 7);
  EXPECT_EQ(*parse_bytes("0", "x"), 0);
  for (const char* wrong : {"", "GB", "-1", "1.5GB", "9999999TiB", "12 apples"})
    EXPECT_FALSE(parse_bytes(wrong, "x").ok());
}

}  // namespace
}  // namespace penstock::client
