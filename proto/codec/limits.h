// Bounds on what a message may carry. decode and from_proto refuse more; to_proto and encode cut texts to
// them, so that no log line and no reason can make a message that the other end refuses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::codec {

constexpr size_t kLargestFrameBytes = 256u << 20;
// What gRPC must be told to take and send: an Assign with the longest program.
constexpr size_t kLargestMessageBytes = 256u << 20;
constexpr size_t kLargestSpecBytes = 1u << 20;
constexpr size_t kLargestBrokerValueBytes = 64u << 10;

constexpr size_t kLongestName = 255;          // names, host ids, addresses, principals
constexpr size_t kLongestReason = 16u << 10;  // reasons and error messages
constexpr size_t kLongestLogLine = 4096;
constexpr size_t kMostLogLines = 1024;  // in one batch
constexpr size_t kMostDevices = 256;    // of one worker
constexpr size_t kMostMemoryKinds = 32;
constexpr size_t kMostParameters = 1u << 17;

constexpr int32_t kMostRanks = 65536;
constexpr int32_t kMostStages = 65536;
constexpr int32_t kMostStagesOfARank = 2048;
constexpr int32_t kMostMicrobatches = 65536;  // of one update
constexpr int32_t kMostUpdates = 65536;
constexpr int64_t kMostMicrobatchesInAll = 1 << 24;  // of all updates
constexpr size_t kMostInstructions = 1u << 22;
constexpr int32_t kMostSlots = 1 << 24;

}  // namespace penstock::codec
