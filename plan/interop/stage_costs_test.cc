#include "plan/interop/stage_costs.h"

#include <gtest/gtest.h>

#include "plan/interop/schedule_report.h"
#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

constexpr const char* kTwo = R"([{"forward": 1, "input_gradient": 2, "weight_gradient": 3, "name": "first"},
                                 {"forward": 0.5, "input_gradient": 1.5, "weight_gradient": 2e0}])";

std::string refusal(const std::string& text, const std::string& latency = "0") {
  const Status status = stage_costs_from_json(text, "x.json", 1, latency).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  return message(status);
}

std::string with_forward(const std::string& value) {
  return "[{\"forward\": " + value + ", \"input_gradient\": 1, \"weight_gradient\": 1}]";
}

TEST(StageCosts, a_list_and_an_object_say_the_same) {
  for (const std::string& text : {std::string(kTwo), "{\"stages\": " + std::string(kTwo) + "}"}) {
    const StatusOr<ScaledCosts> read = stage_costs_from_json(text, "x.json", 2, "0.25");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->scale.ticks_per_unit(), 100);
    ASSERT_EQ(read->costs.stages.size(), 2);
    EXPECT_EQ(read->costs.stages[0].weight_gradient, 300);
    EXPECT_EQ(read->costs.stages[1].forward, 50);
    EXPECT_EQ(read->costs.stages[1].input_gradient, 150);
    EXPECT_EQ(read->costs.latency, 25);
  }
}

TEST(StageCosts, a_schedule_is_played_with_them) {
  const StatusOr<ScaledCosts> costs = stage_costs_from_json(kTwo, "x.json", 2);
  ASSERT_TRUE(costs.ok()) << costs.status();
  const StatusOr<ScheduleReport> report =
      make_report(*generate(ScheduleRequest{"naive", 2, 1, 1}), {.costs = *costs});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->scale.to_text(report->simulation.makespan), "10");  // 1 + 0.5 + 1.5 + 2 + 2 + 3
}

TEST(StageCosts, decimals_are_exact) {
  // 0.1 is no binary number; three of them must still be 0.3.
  const StatusOr<ScaledCosts> read = stage_costs_from_json(with_forward("0.1"), "x.json", 1);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->scale.to_text(3 * read->costs.stages[0].forward), "0.3");
}

TEST(StageCosts, what_is_wrong_is_named_by_file_and_place) {
  EXPECT_EQ(refusal("{}"), "x.json: expected a list of stages, or an object with \"stages\"");
  EXPECT_EQ(refusal(kTwo), "x.json: stages: expected 1 entries, one a stage, found 2");
  EXPECT_EQ(refusal("[3]"), "x.json: stages[0].forward: missing");
  EXPECT_EQ(refusal(R"([{"forward": 1, "weight_gradient": 1}])"),
            "x.json: stages[0].input_gradient: missing");
  EXPECT_EQ(refusal(with_forward("\"1\"")), "x.json: stages[0].forward: expected a number, found string");
  EXPECT_EQ(refusal(with_forward("-1")).substr(0, 30), "x.json: stages[0].forward: '-1");
  EXPECT_EQ(refusal(with_forward("0.12345678901")).substr(0, 28), "x.json: stages[0].forward: '");
  EXPECT_EQ(refusal("[").substr(0, 16), "x.json: not JSON");
  EXPECT_EQ(refusal(with_forward("1"), "soon").substr(0, 15), "latency: 'soon'");
}

}  // namespace
}  // namespace penstock::plan
