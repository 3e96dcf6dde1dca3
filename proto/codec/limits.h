// Bounds on what a message may carry. decode and from_proto refuse more; to_proto and encode cut texts to
// them, so that no log line and no reason can make a message that the other end refuses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/schedule/limits.h"
#include "plan/spec/limits.h"

namespace penstock::codec {

constexpr size_t kLargestFrameBytes = 256u << 20;
// What gRPC must be told to take and send: an Assign with the longest program.
constexpr size_t kLargestMessageBytes = 256u << 20;
constexpr size_t kLargestSpecBytes = plan::kLargestJobFileBytes;
constexpr size_t kLargestBrokerValueBytes = 64u << 10;

constexpr size_t kLongestName = 255;  // names, host ids, addresses, principals
constexpr size_t kLongestPath = 4096;
constexpr size_t kLongestReason = 16u << 10;  // reasons and error messages
constexpr size_t kLongestLogLine = 4096;
constexpr size_t kMostLogLines = 1024;  // in one batch
constexpr size_t kMostDevices = 256;    // of one worker
constexpr size_t kMostMemoryKinds = 32;
constexpr int64_t kMostMemoryBytes = int64_t{1} << 56;  // of a kind; those of all kinds add up to an int64
constexpr int32_t kMostLayers = static_cast<int32_t>(plan::kMostBlocks);
constexpr size_t kMostPayloads =
    2 * plan::kMostBlocks;                 // of a rank: two kinds for each of its blocks with experts
constexpr size_t kMostExperts = 1u << 15;  // of a rank, in all of its blocks: a model has fewer
constexpr size_t kMostTraced = 1u << 16;   // works of a rank in a traced step, and waits
constexpr size_t kMostParameters = 1u << 17;

constexpr int32_t kMostRanks = plan::limits::kRanks;
constexpr int32_t kMostStages = plan::limits::kStages;
constexpr int32_t kMostStagesOfARank = 2 * plan::limits::kStagesPerRank;  // both directions of a pipeline
constexpr int32_t kMostMicrobatches = plan::limits::kMicrobatches;        // of one update
constexpr int32_t kMostUpdates = plan::limits::kUpdates;
constexpr int64_t kMostMicrobatchesInAll = plan::limits::kMicrobatchesInAll;  // of all updates
constexpr size_t kMostInstructions = 1u << 22;                                // of one rank
constexpr int32_t kMostSlots = plan::limits::kSlots;

}  // namespace penstock::codec
