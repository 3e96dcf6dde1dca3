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
  };

  explicit Table(std::vector<Column> columns);

  // One cell a column. An empty cell is shown as "-"; control characters as "?".
  void add_row(std::vector<std::string> cells);

  // Titles first, then a line a row, without line ends and without blanks at the end.
  std::vector<std::string> lines() const;
  std::string text() const;  // the lines, each ended

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace penstock::plan
