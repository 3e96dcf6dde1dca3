#include "plan/cost/memory_table.h"

#include <algorithm>

namespace penstock::plan {
namespace {

Status check_field(const char* field, const std::vector<int64_t>& values, size_t ranks, bool may_be_empty) {
  const bool has_size = values.size() == 1 || values.size() == ranks || (values.empty() && may_be_empty);
  if (!has_size) {
    return invalid_argument("{}: expected one value for all ranks, or {}, one a rank; found {}", field, ranks,
                            values.size());
  }
  for (const int64_t value : values) {
    if (value < 0) return invalid_argument("{}: expected 0 or more, found {}", field, value);
  }
  return ok_status();
}

int64_t of_rank(const std::vector<int64_t>& values, size_t rank) {
  return values.size() == 1 ? values[0] : values[rank];
}

}  // namespace

StatusOr<MemoryTable> memory_table(std::span<const int> peak_activations,
                                   const MemoryAssumptions& assumptions) {
  const size_t ranks = peak_activations.size();
  PENSTOCK_RETURN_IF_ERROR(
      check_field("bytes_per_activation", assumptions.bytes_per_activation, ranks, false));
  PENSTOCK_RETURN_IF_ERROR(check_field("static_bytes", assumptions.static_bytes, ranks, false));
  PENSTOCK_RETURN_IF_ERROR(check_field("memory_budget", assumptions.budget_bytes, ranks, true));
  MemoryTable table;
  for (size_t rank = 0; rank < ranks; ++rank) {
    MemoryRow row{.rank = RankIndex(static_cast<int64_t>(rank)), .peak_activations = peak_activations[rank]};
    const int64_t each = of_rank(assumptions.bytes_per_activation, rank);
    if (__builtin_mul_overflow(each, row.peak_activations, &row.bytes) ||
        __builtin_add_overflow(row.bytes, of_rank(assumptions.static_bytes, rank), &row.bytes)) {
      return invalid_argument(
          "bytes_per_activation: {} x {} activations on rank {} are more than can be counted", each,
          row.peak_activations, rank);
    }
    row.fits = assumptions.budget_bytes.empty() || row.bytes <= of_rank(assumptions.budget_bytes, rank);
    table.fits = table.fits && row.fits;
    table.smallest_budget = std::max(table.smallest_budget, row.bytes);
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace penstock::plan
