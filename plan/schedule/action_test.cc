#include "plan/schedule/action.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

TEST(Action, text_reads_back_to_the_same_action) {
  for (const char* text : {"0F1", "2B3", "0I1", "0W1", "12F345", "O(4F7;3B2)", "O(0I1;0W0)", "999999999F0"}) {
    const StatusOr<Action> action = parse_action(text);
    ASSERT_TRUE(action.ok()) << action.status();
    EXPECT_EQ(to_string(*action), text);
  }
  EXPECT_EQ(*parse_action("2B3"), single(StageIndex(2), ActionKind::Backward, MicrobatchIndex(3)));
}

TEST(Action, anything_else_is_refused_with_the_text) {
  for (const char* text : {"",
                           "F",
                           "0F",
                           "F0",
                           "0f1",
                           "0X1",
                           " 0F1",
                           "0F1 ",
                           "-1F0",
                           "0F-1",
                           "0F1B2",
                           "1000000000F0",
                           "O",
                           "O(",
                           "O()",
                           "O(0F1)",
                           "O(0F1;)",
                           "O(0F1,1B0)",
                           "O(0F1;1B0",
                           "O(0F1;1B0))",
                           "O(O(0F1;1B0);2F0)",
                           "0F99999999999"}) {
    const StatusOr<Action> action = parse_action(text);
    EXPECT_EQ(action.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(message(action.status()), testing::HasSubstr(text));
  }
}

TEST(Action, megabytes_of_text_are_quoted_short) {
  // A file may hold anything; its error must still be readable.
  const StatusOr<Action> action = parse_action(std::string(1 << 20, 'F'));
  EXPECT_LT(message(action.status()).size(), 200u);
}

}  // namespace
}  // namespace penstock::plan
