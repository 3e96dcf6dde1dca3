// A table in the manner of kubectl: titles in capitals, columns apart by three blanks, no lines.
#pragma once

#include <string>
#include <vector>

namespace penstock::plan {

class Table {
 public:
  enum class Align { Left, Right };
  struct Column {
    std::string title;
    Align align = Align::Left;
    bool restless = false;  // an age or a rate: that it moves is no news
  };

  explicit Table(std::vector<Column> columns);

  // One cell a column. An empty cell is shown as "-"; control characters as "?".
  void add_row(std::vector<std::string> cells);

  // Titles first, then a line a row, without line ends and without blanks at the end. No line is longer than
  // `width` (0: any), as far as cutting its last cell can help.
  std::vector<std::string> lines(int width = 0) const;
  std::string text(int width = 0) const;  // the lines, each ended

  // What a row says apart from its restless columns: two looks at the same thing compare by it.
  std::vector<std::string> news() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace penstock::plan
