#include "plan/render/glyphs.h"

#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

TEST(DisplayWidth, is_one_column_a_character) {
  EXPECT_EQ(display_width("caf\xc3\xa9 \xe2\x96\x88"), 6);
}

TEST(Printable, nothing_that_could_steer_a_terminal_passes) {
  EXPECT_EQ(printable("a\x1b[2J\x7f\xc3\xa9"), "a?[2J?\xc3\xa9");
  // A terminal that takes bytes would read 0x9b as the start of a command.
  EXPECT_EQ(printable("\x9b 2J\xed\xa0\x80"), "? 2J???");
}

TEST(Shortened, what_does_not_fit_says_so) {
  EXPECT_EQ(shortened("w\xc3\xa4rme", 5), "w\xc3\xa4rme");
  EXPECT_EQ(shortened("w\xc3\xa4rmer", 5), "w\xc3\xa4...");
  EXPECT_EQ(shortened("warm", 3), "war");
  EXPECT_EQ(shortened("warm", -1), "");
}

}  // namespace
}  // namespace penstock::plan
