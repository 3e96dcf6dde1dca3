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

}  // namespace
}  // namespace penstock::plan
