#include "plan/render/bars.h"

#include <gtest/gtest.h>

#include <limits>

namespace penstock::plan {
namespace {

TEST(ProgressBar, fills_from_the_left) {
  EXPECT_EQ(progress_bar(0, 12), "[>         ]");
  EXPECT_EQ(progress_bar(0.5, 12), "[=====>    ]");
  EXPECT_EQ(progress_bar(1, 12), "[==========]");
  EXPECT_EQ(progress_bar(0.5, 6, Glyphs::Unicode), "[██··]");
}

TEST(ProgressBar, is_full_only_when_the_work_is_done) {
  EXPECT_EQ(progress_bar(0.999, 12), "[=========>]");
}

TEST(ProgressBar, any_number_and_any_width_is_drawn) {
  EXPECT_EQ(progress_bar(-1, 5), "[>  ]");
  EXPECT_EQ(progress_bar(7, 5), "[===]");
  EXPECT_EQ(progress_bar(std::numeric_limits<double>::quiet_NaN(), 5), "[>  ]");
  EXPECT_EQ(progress_bar(0.5, 2), "");
  EXPECT_EQ(progress_bar(0.5, -4), "");
}

TEST(BusyBar, the_busy_part_comes_first) {
  EXPECT_EQ(busy_bar(0.6, 12), "[######....]");
  EXPECT_EQ(busy_bar(0.6, 12, Glyphs::Unicode), "[██████░░░░]");
  EXPECT_EQ(display_width(busy_bar(0.6, 12, Glyphs::Unicode)), 12);
}

TEST(Printable, control_characters_cannot_steer_the_terminal) {
  EXPECT_EQ(printable("a\x1b[2Jb\nc"), "a?[2Jb?c");
  EXPECT_EQ(printable("größe"), "größe");
}

TEST(PlannedBar, mark_stands_at_the_plan_and_what_sticks_out_is_behind_it) {
  EXPECT_EQ(planned_bar(8, 4, 8, 10), "[###|####]");
  EXPECT_EQ(planned_bar(4, 8, 8, 10), "[####   |]");
  EXPECT_EQ(planned_bar(4, 0, 8, 10), "[####    ]");
  EXPECT_EQ(planned_bar(0, 0, 0, 10), "[        ]");
  EXPECT_EQ(planned_bar(9e9, 9e9, 1, 5), "[##|]");
  EXPECT_EQ(planned_bar(1, 1, 1, 2), "");
  EXPECT_EQ(planned_bar(1, 1, 1, 4, Glyphs::Unicode), "[█│]");
}

}  // namespace
}  // namespace penstock::plan
