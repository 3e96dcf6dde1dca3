// Lists in the tables of expected rows.
#pragma once

#include <sstream>
#include <vector>

namespace penstock::plan {

// "8 8 7 5" as whole numbers.
inline std::vector<int> numbers(const char* text) {
  std::istringstream stream(text);
  std::vector<int> values;
  for (int value = 0; stream >> value;) values.push_back(value);
  return values;
}

}  // namespace penstock::plan
