#include "base/utf8.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

// One of every size, and both ends of the range.
constexpr std::string_view kGood[] = {"a",
                                      "\x7f",
                                      "\xc2\x80",
                                      "\xdf\xbf",
                                      "\xe0\xa0\x80",
                                      "\xed\x9f\xbf",
                                      "\xee\x80\x80",
                                      "\xef\xbf\xbf",
                                      "\xf0\x90\x80\x80",
                                      "\xf4\x8f\xbf\xbf"};
// Overlong forms, surrogates, what lies above U+10FFFF, lone and missing continuations.
constexpr std::string_view kBad[] = {"\x80",
                                     "\xbf",
                                     "\xc0\x80",
                                     "\xc1\xbf",
                                     "\xc2",
                                     "\xc2\x41",
                                     "\xe0\x80\x80",
                                     "\xe0\x9f\xbf",
                                     "\xe2\x82",
                                     "\xed\xa0\x80",
                                     "\xed\xbf\xbf",
                                     "\xf0\x8f\xbf\xbf",
                                     "\xf0\x9f\x98",
                                     "\xf4\x90\x80\x80",
                                     "\xf5\x80\x80\x80",
                                     "\xff"};

TEST(Utf8ValidPrefix, takes_every_character_of_unicode) {
  for (const std::string_view text : kGood) EXPECT_EQ(utf8_valid_prefix(text), text.size()) << text;
  EXPECT_EQ(utf8_valid_prefix(""), 0);
}

TEST(Utf8ValidPrefix, ends_before_what_protobuf_would_refuse) {
  for (const std::string_view text : kBad) {
    EXPECT_EQ(utf8_valid_prefix("ab" + std::string(text) + "c"), 2) << testing::PrintToString(text);
    EXPECT_EQ(utf8_valid_prefix("ab" + std::string(text)), 2) << testing::PrintToString(text);
  }
}

TEST(Utf8Cleaned, puts_a_question_mark_for_each_byte_that_belongs_to_no_character) {
  EXPECT_EQ(utf8_cleaned("caf\xe9 \xc3\xa9 \xed\xa0\x80"), "caf? \xc3\xa9 ???");
  for (const std::string_view text : kBad) {
    const std::string clean = utf8_cleaned(text);
    EXPECT_EQ(utf8_valid_prefix(clean), clean.size()) << testing::PrintToString(text);
  }
}

TEST(Utf8Cleaned, cuts_between_characters) {
  EXPECT_EQ(utf8_cleaned("a\xc3\xa9", 2), "a");
  EXPECT_EQ(utf8_cleaned("a\xc3\xa9", 3), "a\xc3\xa9");
  EXPECT_EQ(utf8_cleaned("\xff\xff\xff", 2), "??");
  EXPECT_EQ(utf8_cleaned("abc", 0), "");
}

TEST(Utf8Cut, never_splits_a_character) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";  // 1, 2, 3, 4 and 1 bytes
  constexpr size_t kExpected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
  for (size_t most = 0; most <= text.size(); ++most) {
    EXPECT_EQ(utf8_cut(text, most).size(), kExpected[most]) << most;
  }
  EXPECT_EQ(utf8_cut(text, 99), text);
  EXPECT_EQ(utf8_cut("\x80\x80\x80\x80", 2).size(), 2);  // no character to keep whole
}

TEST(Utf8First, counts_characters_and_not_bytes) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac";
  EXPECT_EQ(utf8_length(text), 3);
  EXPECT_EQ(utf8_first(text, 2), "a\xc3\xa9");
  EXPECT_EQ(utf8_first(text, 9), text);
  EXPECT_EQ(utf8_length("\x80\xff"), 2);
}

}  // namespace
}  // namespace penstock
