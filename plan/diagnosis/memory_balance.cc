#include "plan/diagnosis/memory_balance.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::plan {
namespace {

constexpr double kNearlyFull = 0.9;
constexpr double kHasRoom = 0.7;

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

MemoryBalance judge_memory(const std::vector<int64_t>& rank_bytes, int64_t budget_bytes) {
  MemoryBalance balance;
  if (rank_bytes.empty()) return balance;
  const auto [least, most] = std::minmax_element(rank_bytes.begin(), rank_bytes.end());
  balance.emptiest = static_cast<int>(least - rank_bytes.begin());
  balance.fullest = static_cast<int>(most - rank_bytes.begin());
  std::vector<int64_t> sorted = rank_bytes;
  std::sort(sorted.begin(), sorted.end());
  const int64_t middle = sorted[(sorted.size() - 1) / 2];
  balance.ratio = middle > 0 ? static_cast<double>(*most) / static_cast<double>(middle) : 0;
  balance.because =
      fmt::format("rank {} holds {:.1f} MiB, {:.2f} times the median rank; rank {} holds {:.1f} MiB",
                  balance.fullest, mib(*most), balance.ratio, balance.emptiest, mib(*least));
  if (budget_bytes <= 0) return balance;
  const auto part = [&](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(budget_bytes);
  };
  balance.because +=
      fmt::format("; {:.0f} % and {:.0f} % of the budget", 100 * part(*most), 100 * part(*least));
  balance.imbalanced = part(*most) >= kNearlyFull && part(middle) < kHasRoom;
  if (balance.imbalanced) {
    balance.advice = fmt::format(
        "move layers away from rank {}, recompute some of its layers, or take a schedule that holds "
        "fewer microbatches there",
        balance.fullest);
  }
  return balance;
}

}  // namespace penstock::plan
