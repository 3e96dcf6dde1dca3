// Lists of a row that are one text or one run of bytes.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/core/jobs/memory_use.h"

namespace penstock::coordinator {

std::string joined(const std::vector<std::string>& words, const char* between = " ");

// "parameters 4096 4096 gradients 4096 -": of each kind what is predicted and what was measured.
std::string kinds_text(const RankMemoryView& rank);
// DataLoss: the text is none.
StatusOr<RankMemoryView> read_kinds(const std::string& text);

// As the machine has them: the file stays on it.
template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

template <typename Number>
std::vector<Number> numbers_from(const std::string& bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

}  // namespace penstock::coordinator
