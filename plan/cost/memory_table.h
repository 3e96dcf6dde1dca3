// What every rank of a schedule needs when each activation takes the same, and whether it fits: static bytes
// plus bytes per activation times the most activations that the rank holds at once.
//
// A count answers what a schedule asks of a machine before there is a model. Of a job, memory.h predicts more.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace penstock::plan {

// Each has one entry for all ranks, or one a rank.
struct MemoryAssumptions {
  std::vector<int64_t> bytes_per_activation;  // of one stage and microbatch, as the counts below
  std::vector<int64_t> static_bytes = {0};    // parameters, gradients, optimizer state
  std::vector<int64_t> budget_bytes = {};     // none: everything fits
};

struct MemoryRow {
  RankIndex rank;
  int peak_activations = 0;
  int64_t bytes = 0;
  bool fits = true;
};

struct MemoryTable {
  std::vector<MemoryRow> rows;
  bool fits = true;             // on every rank
  int64_t smallest_budget = 0;  // that would fit everywhere, the same on all ranks
};

// `peak_activations`: of every rank (peak_activations_per_rank). InvalidArgument names the field: negative, of
// another number of entries, or bytes beyond 2^63.
StatusOr<MemoryTable> memory_table(std::span<const int> peak_activations,
                                   const MemoryAssumptions& assumptions);

}  // namespace penstock::plan
