// What ranks tell of their steps.
#include <limits>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/utf8.h"
#include "proto/codec/internal/checks.h"
#include "proto/codec/internal/sender.h"
#include "proto/codec/wire.h"

namespace penstock::codec {
namespace {

// Sums over experts, layers and ranks fit an int64.
constexpr int64_t kMostRows = int64_t{1} << 36;

StageTimes decode_stage(const v1::StageTimes& message, Checks& checks) {
  StageTimes times;
  times.stage = StageIndex(checks.range("stages.stage", message.stage(), 0, kMostStages - 1));
  checks.seconds("stages.forward_seconds", times.forward_seconds = message.forward_seconds());
  checks.seconds("stages.backward_seconds", times.backward_seconds = message.backward_seconds());
  checks.seconds("stages.input_gradient_seconds",
                 times.input_gradient_seconds = message.input_gradient_seconds());
  checks.seconds("stages.weight_gradient_seconds",
                 times.weight_gradient_seconds = message.weight_gradient_seconds());
  times.activation_slots =
      static_cast<int>(checks.range("stages.activation_slots", message.activation_slots(), 0, kMostSlots));
  times.activation_slots_peak = static_cast<int>(
      checks.range("stages.activation_slots_peak", message.activation_slots_peak(), 0, kMostSlots));
  return times;
}

// Each type of layer in each stage of a rank.
constexpr size_t kMostTracedLayers = size_t{plan::kLayerTypes} * kMostStagesOfARank;

// Traced times are sums of two: none may come near the end of the numbers.
constexpr int64_t kLongestTrace = int64_t{1} << 60;

TracedWork decode_traced_work(const v1::TracedWork& message, Checks& checks) {
  TracedWork traced;
  traced.work = {
      StageIndex(checks.range("works.stage", message.stage(), 0, kMostStages - 1)),
      static_cast<plan::ActionKind>(checks.range("works.kind", message.kind(), 0, 3)),
      MicrobatchIndex(checks.range("works.microbatch", message.microbatch(), 0, kMostMicrobatchesInAll - 1))};
  traced.start_ns = checks.range("works.start_ns", message.start_ns(), 0, kLongestTrace);
  traced.end_ns = traced.start_ns + checks.range("works.took_ns", message.took_ns(), 0, kLongestTrace);
  traced.cpu_ns = checks.range("works.cpu_ns", message.cpu_ns(), 0, kLongestTrace);
  return traced;
}

TracedWait decode_traced_wait(const v1::TracedWait& message, Checks& checks) {
  TracedWait traced;
  traced.stage = StageIndex(checks.range("waits.stage", message.stage(), 0, kMostStages - 1));
  traced.flow = message.gradient() ? plan::Flow::Gradient : plan::Flow::Activation;
  traced.microbatch =
      MicrobatchIndex(checks.range("waits.microbatch", message.microbatch(), 0, kMostMicrobatchesInAll - 1));
  traced.start_ns = checks.range("waits.start_ns", message.start_ns(), 0, kLongestTrace);
  traced.end_ns = traced.start_ns + checks.range("waits.took_ns", message.took_ns(), 0, kLongestTrace);
  return traced;
}

TracedLayer decode_traced_layer(const v1::TracedLayer& message, Checks& checks) {
  TracedLayer traced;
  traced.stage = StageIndex(checks.range("layers.stage", message.stage(), 0, kMostStages - 1));
  const std::optional<plan::LayerType> type = from_proto(message.type());
  checks.range("layers.type", message.type(), 1, plan::kLayerTypes);
  traced.type = type.value_or(traced.type);
  traced.forward_ns = checks.range("layers.forward_ns", message.forward_ns(), 0, kLongestTrace);
  traced.backward_ns = checks.range("layers.backward_ns", message.backward_ns(), 0, kLongestTrace);
  return traced;
}

PayloadSlots decode_payload(const v1::PayloadSlots& message, Checks& checks) {
  PayloadSlots payload;
  payload.stage = StageIndex(checks.range("payloads.stage", message.stage(), 0, kMostStages - 1));
  payload.layer = LayerIndex(checks.range("payloads.layer", message.layer(), 0, kMostLayers - 1));
  payload.kind = message.kind();
  checks.require(payload.kind == "inputs" || payload.kind == "output_gradients", "payloads.kind",
                 "inputs or output_gradients", "\"" + utf8_cleaned(payload.kind, 64) + "\"");
  payload.slots = static_cast<int>(checks.range("payloads.slots", message.slots(), 0, kMostSlots));
  payload.held = static_cast<int>(checks.range("payloads.held", message.held(), 0, payload.slots));
  payload.held_peak =
      static_cast<int>(checks.range("payloads.held_peak", message.held_peak(), payload.held, payload.slots));
  checks.seconds("payloads.oldest_lease_seconds",
                 payload.oldest_lease_seconds = message.oldest_lease_seconds());
  return payload;
}

// Each (stage, layer, kind) once, so that sums over a rank's slots fit what holds them.
void check_payloads(const std::vector<PayloadSlots>& payloads, Checks& checks) {
  std::set<std::tuple<StageIndex, LayerIndex, std::string_view>> seen;
  int64_t slots = 0;
  for (const PayloadSlots& payload : payloads) {
    slots += payload.slots;
    if (seen.insert({payload.stage, payload.layer, payload.kind}).second) continue;
    checks.require(
        false, "payloads", "each stage, layer and kind once",
        fmt::format("stage {} layer {} {} twice", payload.stage.value, payload.layer.value, payload.kind));
  }
  checks.range("payloads.slots of all together", slots, 0, std::numeric_limits<int32_t>::max());
}

ExpertRows decode_expert_rows(const v1::ExpertRows& message, Checks& checks) {
  ExpertRows experts;
  experts.stage = StageIndex(checks.range("expert_rows.stage", message.stage(), 0, kMostStages - 1));
  experts.layer = LayerIndex(checks.range("expert_rows.layer", message.layer(), 0, kMostLayers - 1));
  experts.first_expert =
      static_cast<int>(checks.range("expert_rows.first_expert", message.first_expert(), 0,
                                    static_cast<int64_t>(kMostExperts) - message.rows_size()));
  for (const int64_t rows : message.rows())
    experts.rows.push_back(checks.range("expert_rows.rows", rows, 0, kMostRows));
  experts.dropped = checks.range("expert_rows.dropped", message.dropped(), 0, kMostRows);
  return experts;
}

// Each (stage, layer) once, so that a rank counts no row twice.
void decode_all_expert_rows(const v1::StepReport& message, StepReport& report, Checks& checks) {
  size_t experts = 0;
  for (const v1::ExpertRows& each : message.expert_rows()) experts += static_cast<size_t>(each.rows_size());
  checks.count("expert_rows", static_cast<size_t>(message.expert_rows_size()), plan::kMostBlocks);
  checks.count("expert_rows.rows of all together", experts, kMostExperts);
  std::set<std::pair<StageIndex, LayerIndex>> seen;
  for (int i = 0; checks.ok() && i < message.expert_rows_size(); ++i) {
    const ExpertRows& added =
        report.expert_rows.emplace_back(decode_expert_rows(message.expert_rows(i), checks));
    checks.require(seen.insert({added.stage, added.layer}).second, "expert_rows", "each stage and layer once",
                   fmt::format("stage {} layer {} twice", added.stage.value, added.layer.value));
  }
}

}  // namespace

v1::StepReport to_proto(const StepReport& report) {
  v1::StepReport message;
  *message.mutable_attempt() = to_proto(report.attempt);
  message.set_rank(report.rank.value);
  message.set_step(report.step);
  if (report.loss) message.set_loss(*report.loss);
  if (report.validation_loss) message.set_validation_loss(*report.validation_loss);
  message.set_wall_seconds(report.wall_seconds);
  message.set_cpu_seconds(report.cpu_seconds);
  message.set_wait_seconds(report.wait_seconds);
  message.set_optimizer_seconds(report.optimizer_seconds);
  message.set_gradient_norm(report.gradient_norm);
  for (const StageTimes& times : report.stages) {
    v1::StageTimes& added = *message.add_stages();
    added.set_stage(times.stage.value);
    added.set_forward_seconds(times.forward_seconds);
    added.set_backward_seconds(times.backward_seconds);
    added.set_input_gradient_seconds(times.input_gradient_seconds);
    added.set_weight_gradient_seconds(times.weight_gradient_seconds);
    added.set_activation_slots(times.activation_slots);
    added.set_activation_slots_peak(times.activation_slots_peak);
  }
  for (const MemoryKind& memory : report.memory) {
    v1::MemoryKind& added = *message.add_memory();
    added.set_kind(memory.kind);
    added.set_bytes_peak(memory.bytes_peak);
  }
  for (const PayloadSlots& payload : report.payloads) {
    v1::PayloadSlots& added = *message.add_payloads();
    added.set_stage(payload.stage.value);
    added.set_layer(payload.layer.value);
    added.set_kind(payload.kind);
    added.set_slots(payload.slots);
    added.set_held(payload.held);
    added.set_held_peak(payload.held_peak);
    added.set_oldest_lease_seconds(payload.oldest_lease_seconds);
  }
  for (const ExpertRows& experts : report.expert_rows) {
    v1::ExpertRows& added = *message.add_expert_rows();
    added.set_stage(experts.stage.value);
    added.set_layer(experts.layer.value);
    added.set_first_expert(experts.first_expert);
    added.mutable_rows()->Add(experts.rows.begin(), experts.rows.end());
    added.set_dropped(experts.dropped);
  }
  return message;
}

StatusOr<StepReport> from_proto(const v1::StepReport& message) {
  Checks checks("StepReport");
  StepReport report;
  report.attempt = decode_attempt(message, checks);
  report.rank = decode_rank(message, checks);
  report.step = checks.range("step", message.step(), 0, kAny);
  if (message.has_loss()) report.loss = message.loss();
  if (message.has_validation_loss()) report.validation_loss = message.validation_loss();
  checks.seconds("wall_seconds", report.wall_seconds = message.wall_seconds());
  checks.seconds("cpu_seconds", report.cpu_seconds = message.cpu_seconds());
  checks.seconds("wait_seconds", report.wait_seconds = message.wait_seconds());
  checks.seconds("optimizer_seconds", report.optimizer_seconds = message.optimizer_seconds());
  report.gradient_norm = message.gradient_norm();
  checks.count("stages", static_cast<size_t>(message.stages_size()), kMostStagesOfARank);
  for (int i = 0; checks.ok() && i < message.stages_size(); ++i) {
    report.stages.push_back(decode_stage(message.stages(i), checks));
  }
  checks.count("memory", static_cast<size_t>(message.memory_size()), kMostMemoryKinds);
  for (int i = 0; checks.ok() && i < message.memory_size(); ++i) {
    const v1::MemoryKind& memory = message.memory(i);
    checks.name("memory.kind", memory.kind());
    checks.range("memory.bytes_peak", memory.bytes_peak(), 0, kMostMemoryBytes);
    report.memory.push_back(MemoryKind{memory.kind(), memory.bytes_peak()});
  }
  checks.count("payloads", static_cast<size_t>(message.payloads_size()), kMostPayloads);
  for (int i = 0; checks.ok() && i < message.payloads_size(); ++i) {
    report.payloads.push_back(decode_payload(message.payloads(i), checks));
  }
  check_payloads(report.payloads, checks);
  decode_all_expert_rows(message, report, checks);
  if (!checks.ok()) return checks.status();
  return report;
}

v1::LayerType to_proto(plan::LayerType type) {
  return static_cast<v1::LayerType>(static_cast<int>(type) + 1);
}

std::optional<plan::LayerType> from_proto(v1::LayerType type) {
  if (type < v1::LAYER_TYPE_EMBEDDING || type > v1::LAYER_TYPE_HEAD) return std::nullopt;
  return static_cast<plan::LayerType>(static_cast<int>(type) - 1);
}

v1::StepTrace to_proto(const StepTrace& trace) {
  v1::StepTrace message;
  *message.mutable_attempt() = to_proto(trace.attempt);
  message.set_rank(trace.rank.value);
  message.set_step(trace.step);
  message.set_clock(trace.clock);
  message.set_monotonic_ns(trace.monotonic_ns);
  message.set_unix_ns(trace.unix_ns);
  for (const TracedWork& traced : trace.works) {
    v1::TracedWork& added = *message.add_works();
    added.set_stage(traced.work.stage.value);
    added.set_kind(static_cast<int32_t>(traced.work.kind));
    added.set_microbatch(traced.work.microbatch.value);
    added.set_start_ns(traced.start_ns);
    added.set_took_ns(traced.end_ns - traced.start_ns);
    added.set_cpu_ns(traced.cpu_ns);
  }
  for (const TracedWait& traced : trace.waits) {
    v1::TracedWait& added = *message.add_waits();
    added.set_stage(traced.stage.value);
    added.set_gradient(traced.flow == plan::Flow::Gradient);
    added.set_microbatch(traced.microbatch.value);
    added.set_start_ns(traced.start_ns);
    added.set_took_ns(traced.end_ns - traced.start_ns);
  }
  for (const TracedLayer& traced : trace.layers) {
    v1::TracedLayer& added = *message.add_layers();
    added.set_stage(traced.stage.value);
    added.set_type(to_proto(traced.type));
    added.set_forward_ns(traced.forward_ns);
    added.set_backward_ns(traced.backward_ns);
  }
  return message;
}

StatusOr<StepTrace> from_proto(const v1::StepTrace& message) {
  Checks checks("StepTrace");
  StepTrace trace;
  trace.attempt = decode_attempt(message, checks);
  trace.rank = decode_rank(message, checks);
  trace.step = checks.range("step", message.step(), 0, kAny);
  checks.name("clock", trace.clock = message.clock());
  trace.monotonic_ns = checks.range("monotonic_ns", message.monotonic_ns(), 0, kLongestTrace);
  trace.unix_ns = checks.range("unix_ns", message.unix_ns(), 0, kAny);
  checks.count("works", static_cast<size_t>(message.works_size()), kMostTraced);
  for (int i = 0; checks.ok() && i < message.works_size(); ++i) {
    trace.works.push_back(decode_traced_work(message.works(i), checks));
  }
  checks.count("waits", static_cast<size_t>(message.waits_size()), kMostTraced);
  for (int i = 0; checks.ok() && i < message.waits_size(); ++i) {
    trace.waits.push_back(decode_traced_wait(message.waits(i), checks));
  }
  checks.count("layers", static_cast<size_t>(message.layers_size()), kMostTracedLayers);
  for (int i = 0; checks.ok() && i < message.layers_size(); ++i) {
    trace.layers.push_back(decode_traced_layer(message.layers(i), checks));
  }
  if (!checks.ok()) return checks.status();
  return trace;
}

}  // namespace penstock::codec
