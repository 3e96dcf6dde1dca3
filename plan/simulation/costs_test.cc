#include "plan/simulation/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

TEST(TickScale, finest_number_sets_the_tick_and_all_print_back_as_written) {
  const std::vector<std::string> texts = {"18.522", "3", "0.601", "0", "5e-1", "1200", "1.5e2", ".25"};
  const auto scale = TickScale::for_numbers(texts);
  ASSERT_TRUE(scale.ok()) << scale.status();
  EXPECT_EQ(scale->ticks_per_unit(), 1000);
  std::vector<std::string> printed;
  for (const std::string& text : texts) printed.push_back(scale->to_text(*scale->to_ticks(text)));
  EXPECT_THAT(printed, testing::ElementsAre("18.522", "3", "0.601", "0", "0.5", "1200", "150", "0.25"));
}

TEST(TickScale, sum_of_decimals_is_exact) {
  // In doubles 0.1 + 0.2 is not 0.3.
  const std::vector<std::string> texts = {"0.1", "0.2"};
  const auto scale = TickScale::for_numbers(texts);
  EXPECT_EQ(scale->to_text(*scale->to_ticks("0.1") + *scale->to_ticks("0.2")), "0.3");
  EXPECT_EQ(scale->to_text(-5), "-0.5");
}

TEST(TickScale, trailing_zeros_do_not_make_the_tick_finer) {
  const std::vector<std::string> texts = {"2.000", "10"};
  EXPECT_EQ(TickScale::for_numbers(texts)->ticks_per_unit(), 1);
}

TEST(TickScale, what_is_no_cost_is_refused_with_the_text) {
  for (const char* text : {"", "-1", "1,5", "abc", "1e", "e5", ".", "1..2", "0x10", "nan", "inf", "1e400",
                           "0.0000000001", "1000000000", "1e-10", "99999999999999999999999", "1 2"}) {
    const std::vector<std::string> texts = {text};
    const auto scale = TickScale::for_numbers(texts);
    EXPECT_EQ(scale.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(message(scale.status()), testing::HasSubstr(text));
  }
  EXPECT_FALSE(TickScale().to_ticks("0.5").ok());
}

TEST(UniformCosts, three_or_four_numbers_and_a_latency_are_read) {
  const auto costs = parse_uniform_costs("10,10,5,20.5", "0.5");
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->scale.ticks_per_unit(), 10);
  EXPECT_EQ(costs->stage.weight_gradient, 50);
  EXPECT_EQ(costs->overlapped_pair, 205);
  EXPECT_EQ(costs->for_stages(3).latency, 5);
  EXPECT_EQ(costs->for_stages(3).stages.size(), 3u);
  EXPECT_EQ(parse_uniform_costs("1,1,1")->overlapped_pair, 0);
  for (const char* text : {"", "1,1", "1,1,1,1,1", "1,,1", "1,x,1"}) {
    EXPECT_EQ(parse_uniform_costs(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace penstock::plan
