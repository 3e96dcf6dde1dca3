#include "proto/codec/codec.h"

#include <algorithm>

#include "base/utf8.h"
#include "plan/spec/limits.h"
#include "proto/codec/internal/checks.h"
#include "proto/codec/wire.h"

namespace penstock::codec {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

template <typename Message>
Status parse_message(const std::string& bytes, const char* name, Message& message) {
  if (bytes.size() > kLargestFrameBytes) {
    return invalid_argument("{}: expected at most {} bytes, found {}", name, kLargestFrameBytes,
                            bytes.size());
  }
  if (message.ParseFromString(bytes)) return ok_status();
  return invalid_argument("{}: expected a protobuf message, found {} bytes that are none", name,
                          bytes.size());
}

// Turns StatusOr<Part> into StatusOr<Frame>.
template <typename Frame, typename Part>
StatusOr<Frame> as_frame(StatusOr<Part> part) {
  if (!part.ok()) return part.status();
  return Frame(*std::move(part));
}

StatusOr<BrokerPublish> from_proto(const v1::BrokerPublish& message) {
  Checks checks("BrokerPublish");
  BrokerPublish publish;
  publish.id = message.id();
  StatusOr<CommunicatorKey> key = codec::from_proto(message.key());
  checks.nested("key", key.status());
  checks.size("value", publish.value = message.value(), kLargestBrokerValueBytes);
  if (!checks.ok()) return checks.status();
  publish.key = *std::move(key);
  return publish;
}

StatusOr<BrokerLookUp> from_proto(const v1::BrokerLookUp& message) {
  Checks checks("BrokerLookUp");
  BrokerLookUp look_up;
  look_up.id = message.id();
  constexpr int64_t kLongestWaitMs = 24LL * 3600 * 1000;
  look_up.timeout_ms = checks.range("timeout_ms", message.timeout_ms(), 0, kLongestWaitMs);
  StatusOr<CommunicatorKey> key = codec::from_proto(message.key());
  checks.nested("key", key.status());
  if (!checks.ok()) return checks.status();
  look_up.key = *std::move(key);
  return look_up;
}

StatusOr<BrokerReply> from_proto(const v1::BrokerReply& message) {
  Checks checks("BrokerReply");
  BrokerReply reply;
  reply.id = message.id();
  constexpr auto kLastCode = static_cast<int64_t>(StatusCode::kUnauthenticated);
  const auto code = static_cast<StatusCode>(checks.range("code", message.code(), 0, kLastCode));
  checks.size("message", message.message(), kLongestReason);
  checks.size("value", reply.value = message.value(), kLargestBrokerValueBytes);
  if (!checks.ok()) return checks.status();
  reply.status = Status(code, message.message());
  return reply;
}

StatusOr<ExecutorAssignment> from_proto(const v1::ExecutorAssignment& message) {
  Checks checks("ExecutorAssignment");
  ExecutorAssignment assignment;
  StatusOr<Assignment> assign = codec::from_proto(message.assign());
  checks.nested("assign", assign.status());
  checks.name("bind_address", assignment.bind_address = message.bind_address());
  checks.name("worker", assignment.worker = message.worker());
  assignment.threads = static_cast<int>(checks.range("threads", message.threads(), 1, plan::kMostThreads));
  if (!checks.ok()) return checks.status();
  assignment.assignment = *std::move(assign);
  return assignment;
}

void fill(const BrokerPublish& publish, v1::BrokerPublish& message) {
  message.set_id(publish.id);
  *message.mutable_key() = to_proto(publish.key);
  message.set_value(publish.value);
}

void fill(const BrokerLookUp& look_up, v1::BrokerLookUp& message) {
  message.set_id(look_up.id);
  *message.mutable_key() = to_proto(look_up.key);
  message.set_timeout_ms(look_up.timeout_ms);
}

void fill(const BrokerReply& reply, v1::BrokerReply& message) {
  message.set_id(reply.id);
  message.set_code(static_cast<int32_t>(reply.status.code()));
  message.set_message(utf8_cleaned(penstock::message(reply.status), kLongestReason));
  message.set_value(reply.value);
}

void fill(const ExecutorAssignment& assignment, v1::ExecutorAssignment& message) {
  *message.mutable_assign() = to_proto(assignment.assignment);
  message.set_bind_address(assignment.bind_address);
  message.set_worker(assignment.worker);
  message.set_threads(assignment.threads);
}

}  // namespace

std::string encode(const ExecutorFrame& frame) {
  v1::ExecutorMessage message;
  std::visit(
      Overloaded{
          [&](const RankReady& part) { *message.mutable_rank_ready() = to_proto(part); },
          [&](const StepReport& part) { *message.mutable_step_report() = to_proto(part); },
          [&](const StepTrace& part) { *message.mutable_step_trace() = to_proto(part); },
          [&](const RankFinished& part) { *message.mutable_rank_finished() = to_proto(part); },
          [&](const RankFailed& part) { *message.mutable_rank_failed() = to_proto(part); },
          [&](const BrokerPublish& part) { fill(part, *message.mutable_publish()); },
          [&](const BrokerLookUp& part) { fill(part, *message.mutable_look_up()); },
          [&](const LogBatch& part) { *message.mutable_log_batch() = to_proto(part); },
          [&](const CheckpointWritten& part) { *message.mutable_checkpoint_written() = to_proto(part); },
      },
      frame);
  return message.SerializeAsString();
}

std::string encode(const DaemonFrame& frame) {
  v1::DaemonMessage message;
  std::visit(Overloaded{
                 [&](const ExecutorAssignment& part) { fill(part, *message.mutable_assignment()); },
                 [&](const BrokerReply& part) { fill(part, *message.mutable_broker_reply()); },
             },
             frame);
  return message.SerializeAsString();
}

std::string encode(const StepTrace& trace) {
  return to_proto(trace).SerializeAsString();
}

StatusOr<StepTrace> decode_step_trace(const std::string& bytes) {
  v1::StepTrace message;
  PENSTOCK_RETURN_IF_ERROR(parse_message(bytes, "StepTrace", message));
  return from_proto(message);
}

StatusOr<ExecutorFrame> decode_executor_frame(const std::string& bytes) {
  v1::ExecutorMessage message;
  PENSTOCK_RETURN_IF_ERROR(parse_message(bytes, "ExecutorMessage", message));
  switch (message.message_case()) {
    case v1::ExecutorMessage::kRankReady:
      return as_frame<ExecutorFrame>(from_proto(message.rank_ready()));
    case v1::ExecutorMessage::kStepReport:
      return as_frame<ExecutorFrame>(from_proto(message.step_report()));
    case v1::ExecutorMessage::kStepTrace:
      return as_frame<ExecutorFrame>(from_proto(message.step_trace()));
    case v1::ExecutorMessage::kRankFinished:
      return as_frame<ExecutorFrame>(from_proto(message.rank_finished()));
    case v1::ExecutorMessage::kRankFailed:
      return as_frame<ExecutorFrame>(from_proto(message.rank_failed()));
    case v1::ExecutorMessage::kPublish:
      return as_frame<ExecutorFrame>(from_proto(message.publish()));
    case v1::ExecutorMessage::kLookUp:
      return as_frame<ExecutorFrame>(from_proto(message.look_up()));
    case v1::ExecutorMessage::kLogBatch:
      return as_frame<ExecutorFrame>(from_proto(message.log_batch()));
    case v1::ExecutorMessage::kCheckpointWritten:
      return as_frame<ExecutorFrame>(from_proto(message.checkpoint_written()));
    case v1::ExecutorMessage::MESSAGE_NOT_SET:
      break;
  }
  return invalid_argument("ExecutorMessage: expected one message inside, found none");
}

StatusOr<DaemonFrame> decode_daemon_frame(const std::string& bytes) {
  v1::DaemonMessage message;
  PENSTOCK_RETURN_IF_ERROR(parse_message(bytes, "DaemonMessage", message));
  switch (message.message_case()) {
    case v1::DaemonMessage::kAssignment:
      return as_frame<DaemonFrame>(from_proto(message.assignment()));
    case v1::DaemonMessage::kBrokerReply:
      return as_frame<DaemonFrame>(from_proto(message.broker_reply()));
    case v1::DaemonMessage::MESSAGE_NOT_SET:
      break;
  }
  return invalid_argument("DaemonMessage: expected one message inside, found none");
}

}  // namespace penstock::codec
