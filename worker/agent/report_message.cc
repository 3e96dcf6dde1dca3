#include "worker/agent/report_message.h"

#include "proto/codec/wire.h"

namespace penstock::worker {
namespace {

void fill(v1::WorkerMessage& message, const RankReady& report) {
  *message.mutable_rank_ready() = codec::to_proto(report);
}
void fill(v1::WorkerMessage& message, const StepReport& report) {
  *message.mutable_step_report() = codec::to_proto(report);
}
void fill(v1::WorkerMessage& message, const StepTrace& report) {
  *message.mutable_step_trace() = codec::to_proto(report);
}
void fill(v1::WorkerMessage& message, const RankFinished& report) {
  *message.mutable_rank_finished() = codec::to_proto(report);
}
void fill(v1::WorkerMessage& message, const RankFailed& report) {
  *message.mutable_rank_failed() = codec::to_proto(report);
}
void fill(v1::WorkerMessage& message, const CheckpointWritten& report) {
  *message.mutable_checkpoint_written() = codec::to_proto(report);
}
void fill(v1::WorkerMessage& message, const LogBatch& report) {
  *message.mutable_log_batch() = codec::to_proto(report);
}
void fill(v1::WorkerMessage& message, const DrainNotice& report) {
  message.mutable_draining()->set_reason(report.reason);
}
void fill(v1::WorkerMessage& message, const HeartbeatDue& report) {
  message.mutable_heartbeat()->set_sequence(report.sequence);
}
void fill(v1::WorkerMessage& message, const RankStopped& report) {
  v1::ExecutorStopped& stopped = *message.mutable_executor_stopped();
  *stopped.mutable_attempt() = codec::to_proto(report.attempt);
  stopped.set_rank(report.rank.value);
}

}  // namespace

v1::WorkerMessage to_message(const Report& report) {
  v1::WorkerMessage message;
  std::visit([&message](const auto& r) { fill(message, r); }, report);
  return message;
}

}  // namespace penstock::worker
