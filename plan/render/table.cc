#include "plan/render/table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "plan/render/glyphs.h"

namespace penstock::plan {
namespace {

constexpr int kGap = 3;
constexpr int kLastCellMin = 12;  // a cell cut to less says nothing

std::string padding(int columns) {
  return std::string(static_cast<size_t>(std::max(columns, 0)), ' ');
}

std::string padded(const std::string& cell, int width, Table::Align align) {
  const std::string blanks = padding(width - display_width(cell));
  return align == Table::Align::Left ? cell + blanks : blanks + cell;
}

std::string without_blanks_at_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  PENSTOCK_CHECK_EQ(cells.size(), columns_.size());
  for (std::string& cell : cells) cell = cell.empty() ? "-" : printable(cell);
  rows_.push_back(std::move(cells));
}

std::vector<std::string> Table::lines(int width) const {
  std::vector<std::vector<std::string>> all(1);
  for (const Column& column : columns_) all[0].push_back(column.title);
  all.insert(all.end(), rows_.begin(), rows_.end());

  std::vector<int> widths(columns_.size(), 0);
  for (const auto& row : all) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  if (width > 0 && !widths.empty()) {
    const int before =
        std::accumulate(widths.begin(), widths.end() - 1, 0) + kGap * (static_cast<int>(widths.size()) - 1);
    widths.back() = std::min(widths.back(), std::max(width - before, kLastCellMin));
    for (auto& row : all) row.back() = shortened(row.back(), widths.back());
  }
  std::vector<std::string> lines;
  for (const auto& row : all) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += padding(i == 0 ? 0 : kGap) + padded(row[i], widths[i], columns_[i].align);
    }
    lines.push_back(without_blanks_at_end(std::move(line)));
  }
  return lines;
}

std::string Table::text(int width) const {
  std::string text;
  for (const std::string& line : lines(width)) text += line + "\n";
  return text;
}

std::vector<std::string> Table::news() const {
  std::vector<std::string> news;
  for (const auto& row : rows_) {
    std::string& said = news.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      if (!columns_[i].restless) said += row[i] + '\t';  // a cell holds none
    }
  }
  return news;
}

}  // namespace penstock::plan
