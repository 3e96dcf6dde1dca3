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

}  // namespace
}  // namespace penstock::plan
