// What every rank holds at every moment of a simulation, by kind.
//
// Papers release an activation at different points. Here each part of a stage's work says what it adds:
//   whole until W   {+M, 0, -M}        until B or I   {+M, -M, 0}        zero-bubble   {+M_B, M_W-M_B, -M_W}
// A fused backward adds both parts at its end, a forward its part at its start. In forward-only programs a
// forward's part is gone at its end. One "activation" is that of one stage: with V stages a rank, a paper that
// counts whole ranks divides by V.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/program.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

// Bytes that each part adds; they sum to 0.
struct ActivationBytes {
  int64_t forward = 0;
  int64_t input_gradient = 0;
  int64_t weight_gradient = 0;
};

struct MemoryCosts {
  std::vector<ActivationBytes> stages;
  std::vector<int64_t> static_bytes;   // by rank: parameters, gradients, optimizer state; or none: 0
  std::vector<int64_t> message_bytes;  // [s]: of a tensor between stages s and s+1, both ways; or none: 0
};

struct MemoryUse {
  int64_t static_bytes = 0;
  int64_t activations = 0;
  int64_t boundary = 0;  // tensors in receive, send and hand-off slots

  int64_t total() const { return static_bytes + activations + boundary; }
  bool operator==(const MemoryUse&) const = default;
};

struct MemoryPoint {
  Ticks time = 0;
  MemoryUse use;  // from this time on, until the next point
};

struct RankMemory {
  std::vector<MemoryPoint> points;  // ascending; the first at 0
  MemoryUse peak;                   // the first with the largest total
  Ticks peak_time = 0;
};

// Activations and static bytes; boundary stays 0. `simulation` is one of `program`. InvalidArgument: costs of
// another shape, deltas that do not sum to 0, or sums that overflow.
StatusOr<std::vector<RankMemory>> memory_over_time(const ComputeProgram& program,
                                                   const Simulation& simulation, const MemoryCosts& costs);

// With the boundary slots that `lowered` uses, which is `program` lowered: a receive slot from its post until
// its reader has ended, a send slot from the start of its producer until the wait for it, a hand-off slot from
// the start of its producer until its reader has ended.
StatusOr<std::vector<RankMemory>> memory_over_time(const ComputeProgram& program,
                                                   const LoweredProgram& lowered,
                                                   const Simulation& simulation, const MemoryCosts& costs);

}  // namespace penstock::plan
