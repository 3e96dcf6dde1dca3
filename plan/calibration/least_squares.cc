#include "plan/calibration/least_squares.h"

#include <algorithm>
#include <cmath>

namespace penstock::plan {
namespace {

constexpr double kSeparable = 1e-9;  // of a column's length must be left once the others are taken out

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> column_of(const Matrix& rows, size_t column) {
  std::vector<double> values;
  for (const std::vector<double>& row : rows) values.push_back(row[column]);
  return values;
}

void subtract(std::vector<double>& from, const std::vector<double>& what, double times) {
  for (size_t i = 0; i < from.size(); ++i) from[i] -= times * what[i];
}

// Over the given columns, by modified Gram-Schmidt.
LeastSquares solve(const Matrix& rows, std::vector<double> right, const std::vector<size_t>& columns) {
  Matrix basis;
  Matrix upper(columns.size(), std::vector<double>(columns.size()));
  std::vector<double> projections;
  for (size_t c = 0; c < columns.size(); ++c) {
    std::vector<double> column = column_of(rows, columns[c]);
    const double length = std::sqrt(dot(column, column));
    for (size_t b = 0; b < basis.size(); ++b) {
      upper[b][c] = dot(basis[b], column);
      subtract(column, basis[b], upper[b][c]);
    }
    const double left = std::sqrt(dot(column, column));
    if (!(left > kSeparable * length)) return {{}, columns[c]};
    upper[c][c] = left;
    for (double& value : column) value /= left;
    projections.push_back(dot(column, right));
    subtract(right, column, projections.back());
    basis.push_back(std::move(column));
  }
  std::vector<double> values(columns.size());
  for (size_t c = columns.size(); c-- > 0;) {
    double value = projections[c];
    for (size_t d = c + 1; d < columns.size(); ++d) value -= upper[c][d] * values[d];
    values[c] = value / upper[c][c];
  }
  return {values, std::nullopt};
}

}  // namespace

LeastSquares solve_non_negative(const Matrix& rows, const std::vector<double>& right) {
  std::vector<size_t> columns(rows.front().size());
  for (size_t c = 0; c < columns.size(); ++c) columns[c] = c;
  std::vector<double> values(columns.size());
  while (!columns.empty()) {
    const LeastSquares solved = solve(rows, right, columns);
    if (solved.inseparable) return solved;
    const auto worst = std::min_element(solved.values.begin(), solved.values.end());
    if (*worst >= 0) {
      for (size_t c = 0; c < columns.size(); ++c) values[columns[c]] = solved.values[c];
      break;
    }
    columns.erase(columns.begin() + (worst - solved.values.begin()));
  }
  return {values, std::nullopt};
}

}  // namespace penstock::plan
