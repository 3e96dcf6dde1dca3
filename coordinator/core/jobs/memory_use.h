// What a rank holds, by kind. Plain data.
//
// Absent means "not predicted", or "not measured yet"; a value is never zero instead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::coordinator {

// One kind of what a rank holds, as predicted before the attempt and as measured in it.
struct MemoryUseView {
  std::string kind{};  // "parameters"
  std::optional<int64_t> predicted_bytes{};
  std::optional<int64_t> peak_bytes{};

  bool operator==(const MemoryUseView&) const = default;
};
using RankMemoryView = std::vector<MemoryUseView>;  // predicted kinds first

}  // namespace penstock::coordinator
