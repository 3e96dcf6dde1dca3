#include "worker/agent/rank_metrics.h"

#include <algorithm>
#include <utility>

namespace penstock::worker {
namespace {

using prometheus::BuildGauge;
using prometheus::BuildHistogram;

// From a stage of a toy model to a step of a large one.
const prometheus::Histogram::BucketBoundaries kSeconds = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1,
                                                          0.3,    1,      3,     10,    30,   100};

std::string series_key(const std::string& family, const std::map<std::string, std::string>& labels) {
  std::string key = family;
  for (const auto& [name, value] : labels) key += '\0' + value;
  return key;
}

}  // namespace

RankMetrics::RankMetrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)),
      step_(BuildGauge()
                .Name("penstock_rank_step")
                .Help("Optimizer steps that the rank has finished.")
                .Register(*registry_)),
      loss_(BuildGauge()
                .Name("penstock_rank_loss")
                .Help("Loss of the last step, on the rank that computes it.")
                .Register(*registry_)),
      gradient_norm_(
          BuildGauge()
              .Name("penstock_rank_gradient_norm")
              .Help(
                  "Gradient norm of the last step: the model's; the rank's own under pipedream and pipedream-2bw.")
              .Register(*registry_)),
      step_seconds_(BuildHistogram()
                        .Name("penstock_rank_step_seconds")
                        .Help("Wall time of a step.")
                        .Register(*registry_)),
      wait_seconds_(BuildHistogram()
                        .Name("penstock_rank_wait_seconds")
                        .Help("Time of a step that the rank waited for transfers.")
                        .Register(*registry_)),
      cpu_seconds_(BuildGauge()
                       .Name("penstock_rank_cpu_seconds")
                       .Help("Thread CPU time of the last step: far below its wall time without waiting "
                             "means a crowded host.")
                       .Register(*registry_)),
      stage_seconds_(BuildGauge()
                         .Name("penstock_stage_seconds")
                         .Help("Median time of a stage's action in the last step.")
                         .Register(*registry_)),
      action_seconds_(BuildHistogram()
                          .Name("penstock_stage_action_seconds")
                          .Help("Median times of a stage's action, over the steps.")
                          .Register(*registry_)),
      memory_(BuildGauge()
                  .Name("penstock_rank_memory_peak_bytes")
                  .Help("Most bytes of a kind that the rank has held.")
                  .Register(*registry_)),
      activation_slots_(BuildGauge()
                            .Name("penstock_activation_slots")
                            .Help("Activation slots of a stage: all, and most held at once.")
                            .Register(*registry_)),
      payload_slots_(BuildGauge()
                         .Name("penstock_payload_slots")
                         .Help("Slots for rows of a stage's experts, all layers and kinds together: all, held at the "
                               "end of the last step, and most held at once in each.")
                         .Register(*registry_)),
      payload_oldest_lease_(BuildGauge()
                                .Name("penstock_payload_oldest_lease_seconds")
                                .Help("The longest that a slot for rows of a stage's experts was held in the last step.")
                                .Register(*registry_)),
      session_open_(BuildGauge()
                        .Name("penstock_worker_session_open")
                        .Help("1 while the coordinator is connected.")
                        .Register(*registry_)
                        .Add({})),
      busy_devices_(BuildGauge()
                        .Name("penstock_worker_busy_devices")
                        .Help("Devices with an executor.")
                        .Register(*registry_)
                        .Add({})) {}

void RankMetrics::set_session_open(bool open) {
  session_open_.Set(open ? 1 : 0);
}
void RankMetrics::set_busy_devices(int busy) {
  busy_devices_.Set(busy);
}

void RankMetrics::start_rank(int device) {
  const std::lock_guard lock(mutex_);
  for (const auto& remove : series_[device].removals) remove();
  series_.erase(device);
}

void RankMetrics::set(Series& series, prometheus::Family<prometheus::Gauge>& family, const Labels& labels,
                      double value) {
  auto [place, inserted] = series.gauges.try_emplace(series_key(family.GetName(), labels));
  if (inserted) {
    place->second = &family.Add(labels);
    series.removals.emplace_back([&family, gauge = place->second] { family.Remove(gauge); });
  }
  place->second->Set(value);
}

void RankMetrics::observe(Series& series, prometheus::Family<prometheus::Histogram>& family,
                          const Labels& labels, double value) {
  auto [place, inserted] = series.histograms.try_emplace(series_key(family.GetName(), labels));
  if (inserted) {
    place->second = &family.Add(labels, kSeconds);
    series.removals.emplace_back([&family, histogram = place->second] { family.Remove(histogram); });
  }
  place->second->Observe(value);
}

void RankMetrics::record(int device, const StepReport& report) {
  const std::lock_guard lock(mutex_);
  Series& series = series_[device];
  const Labels rank = {{"training_job", report.attempt.job}, {"rank", std::to_string(report.rank.value)}};
  set(series, step_, rank, static_cast<double>(report.step + 1));
  if (report.loss) set(series, loss_, rank, *report.loss);
  set(series, gradient_norm_, rank, report.gradient_norm);
  set(series, cpu_seconds_, rank, report.cpu_seconds);
  observe(series, step_seconds_, rank, report.wall_seconds);
  observe(series, wait_seconds_, rank, report.wait_seconds);
  for (const StageTimes& stage : report.stages) record_stage(series, report, stage);
  for (const MemoryKind& memory : report.memory) {
    Labels labels = rank;
    labels["kind"] = memory.kind;
    set(series, memory_, labels, static_cast<double>(memory.bytes_peak));
  }
}

void RankMetrics::record_stage(Series& series, const StepReport& report, const StageTimes& stage) {
  const Labels base = {{"training_job", report.attempt.job}, {"stage", std::to_string(stage.stage.value)}};
  const std::pair<const char*, double> actions[] = {{"F", stage.forward_seconds},
                                                    {"B", stage.backward_seconds},
                                                    {"I", stage.input_gradient_seconds},
                                                    {"W", stage.weight_gradient_seconds}};
  for (const auto& [action, seconds] : actions) {
    if (seconds <= 0) continue;  // this schedule has no such action
    Labels labels = base;
    labels["action"] = action;
    set(series, stage_seconds_, labels, seconds);
    observe(series, action_seconds_, labels, seconds);
  }
  const auto set_slots = [&](prometheus::Family<prometheus::Gauge>& family, const char* state, int slots) {
    Labels labels = base;
    labels["state"] = state;
    set(series, family, labels, slots);
  };
  set_slots(activation_slots_, "total", stage.activation_slots);
  set_slots(activation_slots_, "peak", stage.activation_slots_peak);
  PayloadSlots all;
  for (const PayloadSlots& each : report.payloads) {
    if (each.stage != stage.stage) continue;
    all.slots += each.slots;
    all.held += each.held;
    all.held_peak += each.held_peak;
    all.oldest_lease_seconds = std::max(all.oldest_lease_seconds, each.oldest_lease_seconds);
  }
  if (all.slots == 0) return;  // no experts
  set_slots(payload_slots_, "total", all.slots);
  set_slots(payload_slots_, "held", all.held);
  set_slots(payload_slots_, "peak", all.held_peak);
  set(series, payload_oldest_lease_, base, all.oldest_lease_seconds);
}

}  // namespace penstock::worker
