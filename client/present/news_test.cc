#include "client/present/news.h"

#include <gtest/gtest.h>

namespace penstock::client {
namespace {

TEST(News, only_what_says_something_new_is_printed) {
  News news;
  EXPECT_EQ(news.next("NAME AGE", {{"a", "queued", "a 1s"}, {"b", "queued", "b 1s"}}),
            "NAME AGE\na 1s\nb 1s\n");
  EXPECT_EQ(news.next("NAME AGE", {{"a", "queued", "a 2s"}, {"b", "queued", "b 2s"}}), "");
  EXPECT_EQ(news.next("NAME AGE", {{"a", "queued", "a 3s"}, {"b", "running", "b 3s"}}), "b 3s\n");
}

TEST(News, a_new_width_repeats_the_heading_with_the_next_line_and_not_alone) {
  News news;
  news.next("NAME AGE", {{"a", "queued", "a 9s"}});
  EXPECT_EQ(news.next("NAME  AGE", {{"a", "queued", "a  10s"}}), "");
  EXPECT_EQ(news.next("NAME  AGE", {{"a", "running", "a  11s"}}), "NAME  AGE\na  11s\n");
}

TEST(News, what_comes_back_is_new_again) {
  News news;
  const std::vector<Entry> worker = {{"w", "free", "w\n"}};
  EXPECT_EQ(news.next("", worker), "w\n");
  EXPECT_EQ(news.next("", {}), "");
  EXPECT_EQ(news.next("", worker), "w\n");
}

}  // namespace
}  // namespace penstock::client
