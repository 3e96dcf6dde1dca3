#include "plan/spec/internal/byte_count.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"

namespace penstock::plan {

std::optional<int64_t> byte_count(const std::string& text) {
  static const std::vector<std::pair<std::string, int64_t>> kUnits = {{"TiB", 1LL << 40},
                                                                      {"GiB", 1LL << 30},
                                                                      {"MiB", 1LL << 20},
                                                                      {"KiB", 1LL << 10},
                                                                      {"TB", 1'000'000'000'000},
                                                                      {"GB", 1'000'000'000},
                                                                      {"MB", 1'000'000},
                                                                      {"KB", 1'000},
                                                                      {"B", 1}};
  int64_t unit = 1;
  std::string digits = text;
  for (const auto& [name, bytes] : kUnits) {
    if (!digits.ends_with(name)) continue;
    digits = std::string(trim(digits.substr(0, digits.size() - name.size())));
    unit = bytes;
    break;
  }
  constexpr int64_t kMostBytes = 1LL << 60;
  const bool number = !digits.empty() && digits.size() <= 19 &&
                      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  const int64_t count =
      number ? std::min(std::stoull(digits), static_cast<unsigned long long>(kMostBytes)) : 0;
  if (count < 1 || count > kMostBytes / unit) return std::nullopt;
  return count * unit;
}

}  // namespace penstock::plan
