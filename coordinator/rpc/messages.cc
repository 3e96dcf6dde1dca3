#include "coordinator/rpc/messages.h"

#include <utility>

#include "base/text.h"
#include "proto/codec/wire.h"

namespace penstock::coordinator {
namespace {

// gRPC refuses trailing metadata over 8 KiB, and writes a byte outside of ASCII as three.
constexpr size_t kLongestStatusMessage = 2400;

v1::StageStatus to_proto(const StageView& view) {
  v1::StageStatus stage;
  stage.set_stage(view.stage.value);
  stage.set_rank(view.rank.value);
  stage.set_worker(view.worker);
  for (const std::string& item : view.layers) stage.add_layers(item);
  if (view.forward_ms) stage.set_forward_ms(*view.forward_ms);
  if (view.backward_ms) stage.set_backward_ms(*view.backward_ms);
  if (view.wait_ms) stage.set_wait_ms(*view.wait_ms);
  if (view.memory_peak_bytes) stage.set_memory_peak_bytes(*view.memory_peak_bytes);
  if (view.memory_predicted_bytes) stage.set_memory_predicted_bytes(*view.memory_predicted_bytes);
  if (view.activation_slots) stage.set_activation_slots(*view.activation_slots);
  if (view.activation_slots_peak) stage.set_activation_slots_peak(*view.activation_slots_peak);
  if (view.busy_fraction) stage.set_busy_fraction(*view.busy_fraction);
  if (view.payload_slots) stage.set_payload_slots(*view.payload_slots);
  if (view.payload_slots_peak) stage.set_payload_slots_peak(*view.payload_slots_peak);
  return stage;
}

v1::RankMemory to_proto(const RankMemoryView& view, size_t rank) {
  v1::RankMemory memory;
  memory.set_rank(static_cast<int32_t>(rank));
  for (const MemoryUseView& use : view) {
    v1::MemoryUse& added = *memory.add_kinds();
    added.set_kind(use.kind);
    if (use.predicted_bytes) added.set_predicted_bytes(*use.predicted_bytes);
    if (use.peak_bytes) added.set_peak_bytes(*use.peak_bytes);
  }
  return memory;
}

v1::JobEvent to_proto(const JobEventView& view) {
  v1::JobEvent event;
  event.set_unix_ms(view.unix_ms);
  event.set_state(to_proto(view.state));
  event.set_reason(view.reason);
  event.set_by(view.by);
  return event;
}

v1::MeasuredKind to_proto(MeasuredKind kind) {
  switch (kind) {
    case MeasuredKind::Forward:
      return v1::MEASURED_KIND_FORWARD;
    case MeasuredKind::Backward:
      return v1::MEASURED_KIND_BACKWARD;
    case MeasuredKind::InputGradient:
      return v1::MEASURED_KIND_INPUT_GRADIENT;
    case MeasuredKind::WeightGradient:
      return v1::MEASURED_KIND_WEIGHT_GRADIENT;
    case MeasuredKind::Optimizer:
      return v1::MEASURED_KIND_OPTIMIZER;
    case MeasuredKind::Wait:
      return v1::MEASURED_KIND_WAIT;
    case MeasuredKind::Step:
      return v1::MEASURED_KIND_STEP;
    case MeasuredKind::WaitDependency:
      return v1::MEASURED_KIND_WAIT_DEPENDENCY;
    case MeasuredKind::WaitTransfer:
      return v1::MEASURED_KIND_WAIT_TRANSFER;
    case MeasuredKind::LayerForward:
      return v1::MEASURED_KIND_LAYER_FORWARD;
    case MeasuredKind::LayerBackward:
      return v1::MEASURED_KIND_LAYER_BACKWARD;
  }
  return v1::MEASURED_KIND_UNSPECIFIED;
}

v1::MeasuredSeries to_proto(const MeasuredSeries& measured) {
  v1::MeasuredSeries series;
  series.set_rank(measured.rank.value);
  series.set_stage(measured.stage.is_set() ? measured.stage.value : -1);
  series.set_kind(to_proto(measured.kind));
  if (measured.layer) series.set_layer(codec::to_proto(*measured.layer));
  series.set_count(measured.count);
  const MedianAndTail summary = summarised(measured.seconds);
  series.set_median_seconds(summary.median);
  series.set_p95_seconds(summary.p95);
  series.mutable_samples()->Add(measured.seconds.begin(), measured.seconds.end());
  if (!measured.cpu_seconds.empty()) series.set_cpu_median_seconds(summarised(measured.cpu_seconds).median);
  return series;
}

v1::LayerLoad to_proto(const LayerLoad& measured) {
  v1::LayerLoad layer;
  layer.set_layer(measured.layer.value);
  layer.set_stage(measured.stage.value);
  layer.set_steps(measured.steps);
  layer.mutable_rows()->Add(measured.rows.begin(), measured.rows.end());
  layer.mutable_ratio()->Add(measured.ratio.begin(), measured.ratio.end());
  return layer;
}

v1::LoadHistory to_proto(const LoadHistory& measured) {
  v1::LoadHistory history;
  history.mutable_steps()->Add(measured.steps.begin(), measured.steps.end());
  for (const StageHistory& each : measured.stages) {
    v1::StageHistory& stage = *history.add_stages();
    stage.set_stage(each.stage.value);
    stage.mutable_seconds()->Add(each.seconds.begin(), each.seconds.end());
    stage.mutable_load()->Add(each.load.begin(), each.load.end());
  }
  return history;
}

v1::AttemptMeasurements to_proto(const AttemptMeasurements& measured) {
  v1::AttemptMeasurements attempt;
  attempt.set_attempt(measured.attempt);
  attempt.set_schedule(measured.schedule);
  for (const std::string& stage : measured.stages) {
    v1::StageItems& items = *attempt.add_stages();
    for (const std::string& item : split_on(stage, ' ')) items.add_items(item);
  }
  attempt.set_steps(measured.steps);
  for (const MeasuredSeries& series : measured.series) *attempt.add_series() = to_proto(series);
  for (size_t rank = 0; rank < measured.memory.size(); ++rank)
    *attempt.add_memory() = to_proto(measured.memory[rank], rank);
  for (const LayerLoad& layer : measured.expert_loads) *attempt.add_expert_loads() = to_proto(layer);
  *attempt.mutable_history() = to_proto(measured.history);
  return attempt;
}

void fill(v1::CoordinatorMessage& message, const Registered& registered) {
  message.mutable_registered()->set_lease_ms(registered.lease_ms);
  message.mutable_registered()->set_leases_missed(registered.leases_missed);
  message.mutable_registered()->set_coordinator(registered.coordinator);
}
void fill(v1::CoordinatorMessage& message, const Assignment& assignment) {
  *message.mutable_assign() = codec::to_proto(assignment);
}
void fill(v1::CoordinatorMessage& message, const Abort& abort) {
  *message.mutable_abort()->mutable_attempt() = codec::to_proto(abort.attempt);
  message.mutable_abort()->set_rank(abort.rank.value);
  message.mutable_abort()->set_reason(abort.reason);
}
void fill(v1::CoordinatorMessage& message, const HeartbeatAck& ack) {
  message.mutable_heartbeat_ack()->set_sequence(ack.sequence);
}

// StatusOr<Part> as StatusOr<WorkerMessage>.
template <typename Part>
StatusOr<WorkerMessage> as_message(StatusOr<Part> part) {
  if (!part.ok()) return part.status();
  return WorkerMessage(*std::move(part));
}

StatusOr<ExecutorStopped> stopped_from(const v1::ExecutorStopped& message) {
  PENSTOCK_ASSIGN_OR_RETURN(AttemptKey attempt, codec::from_proto(message.attempt()));
  if (message.rank() < 0)
    return invalid_argument("ExecutorStopped: rank: 0 or more expected, found {}", message.rank());
  return ExecutorStopped{std::move(attempt), RankIndex(message.rank())};
}

}  // namespace

v1::JobState to_proto(JobState state) {
  switch (state) {
    case JobState::Queued:
      return v1::JOB_STATE_QUEUED;
    case JobState::Placing:
      return v1::JOB_STATE_PLACING;
    case JobState::Preparing:
      return v1::JOB_STATE_PREPARING;
    case JobState::Running:
      return v1::JOB_STATE_RUNNING;
    case JobState::Recovering:
      return v1::JOB_STATE_RECOVERING;
    case JobState::Draining:
      return v1::JOB_STATE_DRAINING;
    case JobState::Paused:
      return v1::JOB_STATE_PAUSED;
    case JobState::Succeeded:
      return v1::JOB_STATE_SUCCEEDED;
    case JobState::Failed:
      return v1::JOB_STATE_FAILED;
    case JobState::Cancelled:
      return v1::JOB_STATE_CANCELLED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

v1::Job to_proto(const JobView& view) {
  v1::Job job;
  job.set_name(view.name);
  job.set_state(to_proto(view.state));
  job.set_reason(view.reason);
  job.set_since_unix_ms(view.since_unix_ms);
  job.set_by(view.by);
  job.set_spec_yaml(view.spec_yaml);
  job.set_attempt(view.attempt);
  job.set_step(view.step);
  job.set_steps(view.steps);
  if (view.loss) job.set_loss(*view.loss);
  if (view.tokens_per_second) job.set_tokens_per_second(*view.tokens_per_second);
  if (view.step_seconds) job.set_step_seconds(*view.step_seconds);
  job.set_weights_digest(view.weights_digest);
  job.set_weights_directory(view.weights_directory);
  job.set_durable_step(view.durable_step);
  job.set_started_from(view.started_from);
  job.set_first_step(view.first_step);
  job.set_checkpoints_directory(view.checkpoints_directory);
  job.set_restarts(view.restarts);
  for (const StageView& stage : view.stages) *job.add_stages() = to_proto(stage);
  for (size_t rank = 0; rank < view.memory.size(); ++rank)
    *job.add_memory() = to_proto(view.memory[rank], rank);
  for (const ValidationView& each : view.validation) {
    v1::ValidationLoss& added = *job.add_validation();
    added.set_step(each.step);
    added.set_loss(each.loss);
  }
  job.mutable_losses()->Add(view.losses.begin(), view.losses.end());
  job.set_seconds(view.seconds);
  job.set_submitted_unix_ms(view.submitted_unix_ms);
  job.set_exit_code(view.exit_code);
  job.set_schedule(view.schedule);
  for (const JobEventView& event : view.events) *job.add_events() = to_proto(event);
  job.set_ranks(view.ranks);
  return job;
}

v1::Worker to_proto(const WorkerView& view) {
  v1::Worker worker;
  worker.set_name(view.name);
  worker.set_state(view.state);
  worker.set_pid(view.pid);
  worker.set_executor_pid(view.executor_pid);
  worker.set_device(view.device);
  worker.set_job(view.job);
  worker.set_rank(view.rank.value);
  worker.set_host(view.host);
  worker.set_incarnation(view.incarnation);
  worker.set_since_unix_ms(view.since_unix_ms);
  worker.set_metrics_address(view.metrics_address);
  worker.set_drained_by(view.drained_by);
  return worker;
}

v1::LogLine to_proto(const LogLineView& view) {
  v1::LogLine line;
  line.set_unix_ms(view.unix_ms);
  line.set_rank(view.rank.value);
  line.set_worker(view.worker);
  line.set_text(view.text);
  return line;
}

StatusOr<v1::TraceResponse> to_proto(const TraceView& view) {
  v1::TraceResponse response;
  response.set_spec_yaml(view.spec_yaml);
  response.set_step(view.step);
  for (const int64_t step : view.steps) response.add_steps(step);
  for (const auto& bytes : view.ranks) {
    if (!response.add_ranks()->ParseFromString(*bytes)) {
      return data_loss("the trace of step {}: rank {} is not what was stored", view.step,
                       response.ranks_size() - 1);
    }
  }
  return response;
}

v1::MeasurementsResponse to_proto(const MeasurementsView& view) {
  v1::MeasurementsResponse response;
  response.set_spec_yaml(view.spec_yaml);
  response.set_step(view.step);
  response.set_steps(view.steps);
  for (const StageView& stage : view.stages) *response.add_stages() = to_proto(stage);
  for (const AttemptMeasurements& attempt : view.attempts) *response.add_attempts() = to_proto(attempt);
  return response;
}

v1::SubmitResponse to_proto(const SubmitOutcome& outcome) {
  v1::SubmitResponse response;
  response.set_name(outcome.name);
  for (const std::string& note : outcome.notes) response.add_notes(note);
  response.set_ranks(outcome.ranks);
  response.set_stages(outcome.stages);
  response.set_microbatches(outcome.microbatches);
  for (const std::string& items : outcome.stage_items) response.add_stage_items(items);
  return response;
}

v1::CoordinatorMessage to_proto(const CoordinatorMessage& message) {
  v1::CoordinatorMessage made;
  std::visit([&made](const auto& m) { fill(made, m); }, message);
  return made;
}

StatusOr<WorkerMessage> from_proto(const v1::WorkerMessage& message) {
  switch (message.message_case()) {
    case v1::WorkerMessage::kHeartbeat:
      return WorkerMessage(Heartbeat{message.heartbeat().sequence()});
    case v1::WorkerMessage::kRankReady:
      return as_message(codec::from_proto(message.rank_ready()));
    case v1::WorkerMessage::kStepReport:
      return as_message(codec::from_proto(message.step_report()));
    case v1::WorkerMessage::kStepTrace:
      return as_message(codec::from_proto(message.step_trace()));
    case v1::WorkerMessage::kRankFinished:
      return as_message(codec::from_proto(message.rank_finished()));
    case v1::WorkerMessage::kRankFailed:
      return as_message(codec::from_proto(message.rank_failed()));
    case v1::WorkerMessage::kCheckpointWritten:
      return as_message(codec::from_proto(message.checkpoint_written()));
    case v1::WorkerMessage::kLogBatch:
      return as_message(codec::from_proto(message.log_batch()));
    case v1::WorkerMessage::kDraining:
      return WorkerMessage(Draining{message.draining().reason().substr(0, codec::kLongestReason)});
    case v1::WorkerMessage::kExecutorStopped:
      return as_message(stopped_from(message.executor_stopped()));
    case v1::WorkerMessage::kRegister:
      return invalid_argument("Register: expected once, as the first message of the session");
    case v1::WorkerMessage::MESSAGE_NOT_SET:
      return invalid_argument("WorkerMessage: expected one of its messages, found none that is known here");
  }
  return invalid_argument("WorkerMessage: unknown case {}", static_cast<int>(message.message_case()));
}

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string text = message(status);
  if (text.size() > kLongestStatusMessage) {
    text.resize(kLongestStatusMessage);
    text += " [cut]";
  }
  return {static_cast<grpc::StatusCode>(status.code()), text};
}

}  // namespace penstock::coordinator
