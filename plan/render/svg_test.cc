#include "plan/render/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Played {
  ComputeProgram program;
  Simulation simulation;
};

Played played(const std::string& name, int ranks, int microbatches, int stages_per_rank = 1) {
  Played result{
      generate(
          {.name = name, .ranks = ranks, .microbatches = microbatches, .stages_per_rank = stages_per_rank})
          .value(),
      {}};
  result.simulation = simulate(result.program, uniform_costs(result.program.stages(), {})).value();
  return result;
}

std::string drawn(const Played& played, const SvgStyle& style = {}) {
  return timeline_svg(played.program, played.simulation, style);
}

int count(const std::string& text, const std::string& piece) {
  int found = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

// Every element is closed and quotes match: enough of XML for what the drawing uses.
bool is_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (count(tag, "\"") % 2 != 0 || count(tag, "<") != 0) return false;
    if (tag.back() == '/') continue;
    if (tag.front() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty() && svg.starts_with("<svg ") && svg.ends_with("</svg>\n");
}

TEST(TimelineSvg, every_action_is_a_cell_with_its_name) {
  const std::string svg = drawn(played("1f1b", 4, 8));
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_THAT(svg, HasSubstr("1f1b: 4 ranks, 4 stages, 8 microbatches</text>"));
  for (const std::string name : {"0F0", "0B7", "3F7", "3B0"})
    EXPECT_EQ(count(svg, ">" + name + "</text>"), 1);
  EXPECT_EQ(count(svg, "<rect class=\"f0\""), 4 * 8 + 1);  // and the legend's
  EXPECT_EQ(count(svg, "<rect class=\"b0\""), 4 * 8 + 1);
  EXPECT_EQ(count(svg, "class=\"idle\""), 4 + 1);
  EXPECT_THAT(svg, Not(HasSubstr("input gradient")));  // the legend names what occurs
  EXPECT_THAT(svg, Not(HasSubstr("Left out")));
}

TEST(TimelineSvg, each_lane_says_how_many_forwards_it_holds_at_most) {
  const std::string svg = drawn(played("1f1b", 4, 8));
  for (const std::string peak : {"peak 4", "peak 3", "peak 2", "peak 1"}) EXPECT_EQ(count(svg, peak), 1);
}

TEST(TimelineSvg, a_cell_is_as_long_as_its_action) {
  // One rank, one microbatch, F=1 and B=2: two cells that fill the lane, of 860 px.
  const std::string svg = drawn(played("naive", 1, 1));
  EXPECT_THAT(svg, HasSubstr("<rect class=\"f0\" x=\"84\" y=\"104\" width=\"286.7\" height=\"34\"/>"));
  EXPECT_THAT(svg, HasSubstr("<rect class=\"b0\" x=\"370.7\" y=\"104\" width=\"573.3\" height=\"34\"/>"));
}

TEST(TimelineSvg, stages_of_a_rank_differ_in_shade) {
  const std::string svg = drawn(played("interleaved-1f1b", 2, 4, 2));
  EXPECT_EQ(count(svg, "<rect class=\"f0\""), 8 + 2);
  EXPECT_EQ(count(svg, "<rect class=\"f3\""), 8 + 1);
  EXPECT_THAT(svg, HasSubstr("lighter: later stage of the rank"));
}

TEST(TimelineSvg, a_pair_is_a_cell_in_two_halves) {
  Played pair = played("1f1b", 1, 2);
  auto& actions = pair.simulation.ranks[0].actions;  // 0F0 0B0 0F1 0B1
  actions[1].action.overlapped = actions[2].action.work;
  actions.erase(actions.begin() + 2);
  const std::string svg = drawn(pair);
  EXPECT_EQ(count(svg, "height=\"17\""), 2);
  EXPECT_THAT(svg, HasSubstr("overlapped pair"));
}

TEST(TimelineSvg, a_budget_is_a_line_under_every_rank) {
  const std::string svg =
      drawn(played("gpipe", 2, 4), {.held_budget = 3, .held_budget_name = "at most 3 & no more"});
  EXPECT_EQ(count(svg, "class=\"budget\""), 2 + 1);
  EXPECT_THAT(svg, HasSubstr("at most 3 &amp; no more"));
  EXPECT_EQ(count(drawn(played("gpipe", 2, 4)), "class=\"budget\""), 0);
}

TEST(TimelineSvg, its_size_is_bounded_and_what_is_left_out_is_said) {
  const Played large = played("gpipe", 8, 4096);
  const std::string svg = drawn(large, {.ranks_max = 4, .actions_max = 500});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_LT(svg.size(), 200'000u);
  EXPECT_THAT(svg, HasSubstr("Left out: ranks 4 to 7."));
  EXPECT_THAT(svg, HasSubstr("Left out: what starts at 126 or later; 498 of 65536 actions are drawn."));
  EXPECT_LT(drawn(large).size(), 5'000'000u);
}

TEST(TimelineSvg, text_from_outside_cannot_leave_its_element) {
  Played named = played("1f1b", 1, 1);
  named.program.schedule = "file:<script>\"&\x01.json";
  const std::string svg = drawn(named, {.subtitle = "</text>"});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_THAT(svg, HasSubstr("file:&lt;script&gt;&quot;&amp;?.json"));
}

TEST(TimelineSvg, nothing_to_draw_is_said) {
  Played empty = played("1f1b", 1, 1);
  empty.simulation.ranks[0].actions.clear();
  EXPECT_TRUE(is_well_formed(drawn(empty)));
  EXPECT_THAT(drawn(empty), HasSubstr("There is no action to draw."));
}

TEST(TimelineSvg, the_axis_is_in_the_units_of_the_user) {
  Played slow = played("naive", 1, 1);
  slow.simulation =
      simulate(slow.program, uniform_costs(1, {.forward = 10, .input_gradient = 10, .weight_gradient = 5}))
          .value();
  const std::string texts[] = {"0.1"};
  EXPECT_THAT(drawn(slow, {.scale = TickScale::for_numbers(texts).value()}), HasSubstr(">2.4</text>"));
}

}  // namespace
}  // namespace penstock::plan
