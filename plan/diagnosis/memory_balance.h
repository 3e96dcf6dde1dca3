// Whether memory is spread over ranks so that one of them alone keeps the others from using theirs: with 1f1b the first
// ranks hold more microbatches than the last, whatever the split. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::plan {

struct MemoryBalance {
  bool imbalanced = false;
  int fullest = -1;  // rank
  int emptiest = -1;
  double ratio = 0;     // of the fullest to the median rank
  std::string because;  // a sentence with its numbers
  std::string advice;   // mostly empty
};

// Imbalanced: the fullest rank holds 90 % of its budget while the median one holds less than 70 %. Without a budget (0) only
// the numbers are said. No ranks: nothing is said.
MemoryBalance judge_memory(const std::vector<int64_t>& rank_bytes, int64_t budget_bytes);

}  // namespace penstock::plan
