// How large a program may be: the one place for these bounds. Generators, readers of files and messages and
// the verifiers refuse more, so that no input makes them run for ever or ask for memory without end.
#pragma once

#include <cstdint>

namespace penstock::plan::limits {

constexpr int32_t kRanks = 65'536;
constexpr int32_t kStagesPerRank = 1'024;
constexpr int32_t kStages = 1 << 20;       // of all ranks
constexpr int32_t kMicrobatches = 65'536;  // of one update
constexpr int32_t kUpdates = 65'536;
constexpr int64_t kMicrobatchesInAll = 1 << 24;  // of all updates
constexpr int64_t kActions = 1 << 24;            // of all ranks
constexpr int32_t kExtraForwards = 64;           // of a rank, above its schedule's peak
constexpr int32_t kSlots = 1 << 24;              // of one buffer

}  // namespace penstock::plan::limits
