#include "client/connection/list_of_names.h"

#include <gtest/gtest.h>

namespace penstock::client {
namespace {

TEST(ListOfNames, what_is_not_there_says_where_names_are_listed_and_only_where_a_name_is_wrong) {
  EXPECT_EQ(with_list_of_names("job b: not known; did you mean a?"),
            "job b: not known; did you mean a? See `penstock get jobs`");
  EXPECT_EQ(with_list_of_names("drain: worker w: not known"),
            "drain: worker w: not known; see `penstock get workers`");
  EXPECT_EQ(with_list_of_names("job b: step 3 is not traced"), "job b: step 3 is not traced");
}

}  // namespace
}  // namespace penstock::client
