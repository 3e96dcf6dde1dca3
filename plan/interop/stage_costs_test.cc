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

TEST(CostNumbers, digits_are_carried_on_as_they_are) {
  const StatusOr<CostNumbers> numbers = cost_numbers_from_json(
      R"({"latency": 2e-2, "bytes_per_second": 2.5e10, "overlapped_pair": 7.10,
          "stages": [{"forward": 0.1, "input_gradient": 2, "weight_gradient": 3.5}, {"forward": 4, "backward": 5}]})",
      "x.json");
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_EQ(numbers->latency, "0.02");
  EXPECT_EQ(numbers->bytes_per_second, "25000000000");
  EXPECT_EQ(numbers->overlapped_pair, "7.1");
  ASSERT_EQ(numbers->stages.size(), 2);
  EXPECT_EQ(numbers->stages[0].forward, "0.1");
  EXPECT_EQ(numbers->stages[0].weight_gradient, "3.5");
  EXPECT_EQ(numbers->stages[0].backward, "");
  EXPECT_EQ(numbers->stages[1].input_gradient, "");
  EXPECT_EQ(numbers->stages[1].backward, "5");
}

TEST(CostNumbers, what_is_wrong_is_named_by_file_and_place) {
  const auto refused = [](const std::string& text) {
    const Status status = cost_numbers_from_json(text, "x.json").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    return message(status);
  };
  EXPECT_EQ(refused("{}"), "x.json: expected a list of stages, or an object with \"stages\"");
  EXPECT_EQ(refused(R"([{"backward": 1}])"), "x.json: stages[0].forward: missing");
  EXPECT_EQ(refused(R"([{"forward": 1, "backward": "1"}])"),
            "x.json: stages[0].backward: expected a number, found string");
  EXPECT_EQ(refused(R"({"stages": [], "latency": null})"), "x.json: latency: expected a number, found null");
  EXPECT_EQ(refused(R"({"stages": [], "latency": -1})").substr(0, 19), "x.json: latency: '-");
  EXPECT_EQ(refused(R"({"stages": [], "bytes_per_second": 0})"),
            "x.json: bytes_per_second: expected a number from 1 to 1e18, found 0");
}

}  // namespace
}  // namespace penstock::plan
