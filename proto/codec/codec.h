// Bytes to plain values and back, validating: what comes out of decode is in range, or decode says what is
// not.
//
// Frames on the executor's socket pair: a 4-byte little-endian length, then one ExecutorFrame or DaemonFrame.
// Errors: InvalidArgument names the field, what was expected and what was found. Nothing here crashes on any
// input.
#pragma once

#include <string>
#include <variant>

#include "base/status.h"
#include "proto/codec/limits.h"
#include "proto/codec/messages.h"

namespace penstock::codec {

struct BrokerPublish {
  int64_t id = 0;
  CommunicatorKey key;
  std::string value;
};
struct BrokerLookUp {
  int64_t id = 0;
  CommunicatorKey key;
  int64_t timeout_ms = 0;
};
struct BrokerReply {
  int64_t id = 0;
  Status status;
  std::string value;
};

using ExecutorFrame = std::variant<RankReady, StepReport, StepTrace, RankFinished, RankFailed, BrokerPublish,
                                   BrokerLookUp, LogBatch, CheckpointWritten>;
using DaemonFrame = std::variant<ExecutorAssignment, BrokerReply>;

std::string encode(const ExecutorFrame& frame);
std::string encode(const DaemonFrame& frame);
StatusOr<ExecutorFrame> decode_executor_frame(const std::string& bytes);
StatusOr<DaemonFrame> decode_daemon_frame(const std::string& bytes);

// A trace as it is kept: the bytes of its message.
std::string encode(const StepTrace& trace);
StatusOr<StepTrace> decode_step_trace(const std::string& bytes);

}  // namespace penstock::codec
