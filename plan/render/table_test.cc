#include "plan/render/table.h"

#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

TEST(Table, columns_line_up_and_no_line_ends_in_blanks) {
  Table table({{"NAME"}, {"STEP", Table::Align::Right}, {"REASON"}});
  table.add_row({"quickstart", "7/200", ""});
  table.add_row({"größe", "12/9", "waits for 2 more workers"});
  EXPECT_EQ(table.text(),
            "NAME          STEP   REASON\n"
            "quickstart   7/200   -\n"
            "größe         12/9   waits for 2 more workers\n");
}

TEST(Table, without_rows_only_titles_remain) {
  EXPECT_EQ(Table({{"NAME"}, {"AGE"}}).text(), "NAME   AGE\n");
}

TEST(Table, a_width_bounds_the_last_column) {
  Table table({{"NAME"}, {"REASON"}});
  table.add_row({"quickstart", "waits for 2 more workers"});
  table.add_row({"next", "-"});
  EXPECT_EQ(table.text(30),
            "NAME         REASON\n"
            "quickstart   waits for 2 mo...\n"
            "next         -\n");
  EXPECT_EQ(table.lines(1)[1], "quickstart   waits for...");
  EXPECT_EQ(table.text(37), table.text());
}

TEST(Table, an_age_that_moves_is_no_news) {
  const auto looked = [](const char* step, const char* age) {
    Table table({{"NAME"}, {"STEP"}, {"AGE", Table::Align::Right, true}});
    table.add_row({"quickstart", step, age});
    return table.news();
  };
  EXPECT_EQ(looked("1/9", "1s"), looked("1/9", "2s"));
  EXPECT_NE(looked("1/9", "1s"), looked("2/9", "1s"));
}

}  // namespace
}  // namespace penstock::plan
