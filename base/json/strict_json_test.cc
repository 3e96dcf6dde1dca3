#include "base/json/strict_json.h"

#include <gmock/gmock.h>

namespace penstock {
namespace {

using ::testing::HasSubstr;

std::string problem(const std::string& text, int deepest = 3) {
  const auto json = parse_strict_json(text, deepest);
  return json.ok() ? "" : message(json.status());
}

TEST(StrictJson, value_comes_back) {
  EXPECT_EQ(parse_strict_json(R"({"a": [1, {"b": null}], "c": "x"})", 3)->dump(),
            R"({"a":[1,{"b":null}],"c":"x"})");
  EXPECT_EQ(*parse_strict_json("7", 1), 7);
}

TEST(StrictJson, key_that_stands_twice_is_named) {
  // The library would keep the last one and say nothing.
  EXPECT_THAT(problem(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("\"a\" twice"));
  EXPECT_THAT(problem(R"({"x": {"a": 1}, "y": {"c": 1, "c": 1}})"), HasSubstr("\"c\" twice"));
  EXPECT_EQ(problem(R"({"x": {"a": 1}, "y": {"a": 1}, "a": [{"a": 1}, {"a": 1}]})"), "");
}

TEST(StrictJson, nesting_is_bounded) {
  EXPECT_EQ(problem("[[[]]]"), "");
  EXPECT_THAT(problem("[[[[]]]]"), HasSubstr("at most 3 levels"));
  EXPECT_THAT(problem(std::string(100'000, '[')), HasSubstr("at most 3 levels"));
  EXPECT_THAT(problem(R"({"a": {"b": {"c": {"d": 1}}}})"), HasSubstr("at most 3 levels"));
}

TEST(StrictJson, text_that_is_none_is_told_by_its_byte) {
  EXPECT_THAT(problem(R"({"a": })"), HasSubstr("none at byte 7"));
  EXPECT_THAT(problem(""), HasSubstr("none at byte 1"));
  EXPECT_THAT(problem("{} {}"), HasSubstr("none at byte"));
  EXPECT_THAT(problem("\"\xff\""), HasSubstr("none at byte"));
  EXPECT_THAT(problem("1e999"), HasSubstr("finite"));
}

TEST(StrictJson, long_values_are_shown_short) {
  EXPECT_EQ(shown_json(Json::array({1, 2})), "array of 2");
  EXPECT_LE(shown_json(Json(std::string(500, 'x'))).size(), 60u);
}

}  // namespace
}  // namespace penstock
