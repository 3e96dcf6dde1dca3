// Bounds of a job file that others need: those who hand it on without reading it, and those who offer its defaults.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::plan {

constexpr size_t kLargestJobFileBytes = 1u << 20;
constexpr int64_t kMostBlocks = 4096;  // of a model
constexpr int kMostThreads = 256;      // compute threads of a rank
// Of a program: of one step, or of all its updates.
constexpr int64_t kMostMicrobatchesOfARank = 1 << 17;  // stages_per_rank x microbatches
constexpr int64_t kMostMicrobatchesOfAJob = 1 << 20;   // stages x microbatches

}  // namespace penstock::plan
