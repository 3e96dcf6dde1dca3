// Least squares with no negative answer, for a handful of unknowns.
#pragma once

#include <optional>
#include <vector>

namespace penstock::plan {

using Matrix = std::vector<std::vector<double>>;  // [row][column]

struct LeastSquares {
  std::vector<double> values;         // one a column
  std::optional<size_t> inseparable;  // a column that others can stand for: no unique answer, values is empty
};

// Minimises |rows x - right| over x >= 0. Columns that want to be negative are 0 and the others solved again.
LeastSquares solve_non_negative(const Matrix& rows, const std::vector<double>& right);

}  // namespace penstock::plan
