#include "plan/render/curves_svg.h"

#include <gmock/gmock.h>

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(CurvesSvg, bar_above_its_plan_has_a_colour_of_its_own) {
  const std::string svg =
      curves_svg("job a", {{"time", "mean", {{"stage 0", 10, 20, "10ms"}, {"stage 1", 40, 20, "40ms"}}}});
  EXPECT_EQ(count(svg, "<rect"), 5u);  // the ground and two pairs
  EXPECT_EQ(count(svg, "#EE8866"), 1u);
  EXPECT_THAT(svg, HasSubstr("height=\"116.0\" fill=\"#EE8866\""));  // the largest fills the panel
  EXPECT_THAT(svg, HasSubstr(">40ms<"));
}

TEST(CurvesSvg, text_from_outside_is_escaped_and_many_points_are_cut_with_a_word) {
  Curve curve{"<script>", "plan", std::vector<CurvePoint>(300, {"x", 0, 0, ""})};
  const std::string svg = curves_svg("a & b", {curve});
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("a &amp; b"));
  EXPECT_THAT(svg, HasSubstr("44 more are not drawn"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace penstock::plan
