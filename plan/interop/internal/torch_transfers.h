// What a compute_comms file must say beyond its compute program, since PyTorch runs it without checks.
#pragma once

#include <vector>

#include "plan/interop/internal/torch_cells.h"
#include "plan/schedule/program.h"
#include "plan/verification/verify.h"

namespace penstock::plan::internal {

using TorchRow = std::vector<TorchCell>;

// `rows` are the lines of the file and `program`, which is valid, what they compute. Proves that every tensor
// that changes ranks is sent once behind its producer and received once before its consumer, that both ends
// of a directed pair of ranks have it in one order (the messages have no tags), and that every stage reduces
// its gradient once, behind its last backward. Adds to `violations` up to `limit` in all.
void check_torch_transfers(const std::vector<TorchRow>& rows, const ComputeProgram& program, size_t limit,
                           std::vector<Violation>& violations);

}  // namespace penstock::plan::internal
