#include "base/text.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(NearestName, a_misspelt_word_finds_its_neighbour) {
  const std::vector<std::string> known = {"hidden_size", "vocab_size", "num_hidden_layers"};
  EXPECT_EQ(nearest_name("hiden_size", known), "hidden_size");
  EXPECT_EQ(nearest_name("num_layers", known), "");
  EXPECT_EQ(nearest_name("zzz", known), "");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), known), "");
}

TEST(ListCut, long_lists_are_cut_and_counted) {
  const std::vector<std::string> items = {"a", "b", "c", "d", "e"};
  EXPECT_EQ(list_cut(items), "a, b, c and 2 more");
  EXPECT_EQ(list_cut(items, 5), "a, b, c, d, e");
}

TEST(Join, puts_the_separator_between_items_only) {
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", ""}), "a, b, ");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, " "), "a b");
  EXPECT_EQ(join(std::vector<std::string>{}), "");
}

TEST(Hex, has_two_digits_a_byte) {
  EXPECT_EQ(hex(std::vector<uint8_t>{0x00, 0x0f, 0xff}), "000fff");
  EXPECT_EQ(hex(std::vector<uint8_t>{}), "");
}

TEST(SplitOn, keeps_empty_parts) {
  EXPECT_EQ(split_on("a,,b,", ','), (std::vector<std::string>{"a", "", "b", ""}));
}

TEST(Trim, takes_blanks_from_both_ends) {
  EXPECT_EQ(trim("  a b\n"), "a b");
  EXPECT_EQ(trim(" \t"), "");
}

}  // namespace
}  // namespace penstock
