#include "coordinator/telemetry/telemetry.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "coordinator/core/jobs/expert_loads.h"

namespace penstock::coordinator {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

Family<Gauge>& gauges(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
Family<Counter>& counters(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
Family<Histogram>& histograms(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

// Three buckets a decade.
Histogram::BucketBoundaries decades(double first, int count) {
  Histogram::BucketBoundaries bounds;
  for (double decade = first; count > 0; --count, decade *= 10) {
    for (double part : {1.0, 2.0, 5.0}) bounds.push_back(decade * part);
  }
  return bounds;
}

}  // namespace

// The children of one job, and how each is removed from its family.
struct Telemetry::JobSeries {
  Gauge* step = nullptr;
  Gauge* loss = nullptr;
  Gauge* validation_loss = nullptr;
  Counter* tokens = nullptr;
  Histogram* step_seconds = nullptr;
  std::map<std::pair<Gauges*, std::vector<std::string>>, Gauge*> gauges;  // by family and label values
  std::vector<std::function<void()>> removals;

  template <typename T>
  T* keep(Family<T>& family, T& child) {
    removals.push_back([&family, &child] { family.Remove(&child); });
    return &child;
  }

  // `labels` besides training_job, in a fixed order for each family.
  Gauge& gauge(Gauges& family, const std::string& job, const prometheus::Labels& labels) {
    std::vector<std::string> values;
    for (const auto& [name, value] : labels) values.push_back(value);
    Gauge*& cached = gauges[{&family, std::move(values)}];
    if (!cached) {
      prometheus::Labels all = labels;
      all["training_job"] = job;
      cached = keep(family, family.Add(all));
    }
    return *cached;
  }
};

// A stage in one step, of all ranks that have it: the greatest of each value.
struct Telemetry::StageOfStep {
  StageTimes times{};
  double wait_seconds = 0;
  int64_t payload_slots = 0;
  int64_t payload_held = 0;
  int64_t payload_peak = 0;
  double payload_oldest_lease_seconds = 0;

  void add(const StepReport& rank, const StageTimes& of_rank) {
    raise(times.forward_seconds, of_rank.forward_seconds);
    raise(times.backward_seconds, of_rank.backward_seconds);
    raise(times.input_gradient_seconds, of_rank.input_gradient_seconds);
    raise(times.weight_gradient_seconds, of_rank.weight_gradient_seconds);
    raise(times.activation_slots, of_rank.activation_slots);
    raise(times.activation_slots_peak, of_rank.activation_slots_peak);
    raise(wait_seconds, rank.wait_seconds);
    int64_t slots = 0, held = 0, peak = 0;
    for (const PayloadSlots& payload : rank.payloads) {
      if (payload.stage != of_rank.stage) continue;
      slots += payload.slots;
      held += payload.held;
      peak += payload.held_peak;
      raise(payload_oldest_lease_seconds, payload.oldest_lease_seconds);
    }
    raise(payload_slots, slots);
    raise(payload_held, held);
    raise(payload_peak, peak);
  }

 private:
  template <typename T>
  static void raise(T& most, T value) {
    most = std::max(most, value);
  }
};

Telemetry::Telemetry(std::shared_ptr<Registry> registry)
    : registry_(std::move(registry)),
      jobs_(gauges(*registry_, "penstock_jobs", "Jobs by state")),
      workers_(gauges(*registry_, "penstock_workers", "Worker daemons by state")),
      devices_(gauges(*registry_, "penstock_devices", "Device slots of workers that take work, by state")),
      step_(gauges(*registry_, "penstock_job_step", "Committed optimizer steps")),
      loss_(gauges(*registry_, "penstock_job_loss", "Training loss of the last committed step")),
      validation_loss_(
          gauges(*registry_, "penstock_job_validation_loss", "Mean loss over the held-out data, last pass")),
      tokens_(counters(*registry_, "penstock_job_tokens_total", "Tokens trained in committed steps")),
      step_seconds_(
          histograms(*registry_, "penstock_step_seconds", "Wall time of committed steps, slowest rank")),
      bubble_ratio_(gauges(*registry_, "penstock_pipeline_bubble_ratio",
                           "Share of the last step's wall time that the rank waited")),
      stage_seconds_(gauges(
          *registry_, "penstock_stage_seconds",
          "Median of the last step's actions by stage and action, of its slowest rank; wait is a rank's, over the "
          "step")),
      memory_peak_(
          gauges(*registry_, "penstock_rank_memory_peak_bytes", "Highest accounted memory by rank and kind")),
      activation_slots_(
          gauges(*registry_, "penstock_activation_slots",
                 "Activation slots by stage, of its rank with most: all, and most held at once")),
      payload_slots_(
          gauges(*registry_, "penstock_payload_slots",
                 "Slots for rows of experts by stage, all layers and kinds of its rank with most together: "
                 "all, held at the end of the last step, and most held at once in each")),
      payload_oldest_lease_(
          gauges(*registry_, "penstock_payload_oldest_lease_seconds",
                 "The longest that a slot for rows of experts was held in the last step, by stage")),
      expert_load_(gauges(
          *registry_, "penstock_expert_load_ratio",
          "Rows of the busiest expert to those of the mean one in the last step, by stage, of its most "
          "uneven layer")),
      lease_expirations_(counters(*registry_, "penstock_worker_lease_expirations_total",
                                  "Workers lost because they were silent for all their leases")
                             .Add({})) {
  Family<Counter>& refusals =
      counters(*registry_, "penstock_reports_refused_total",
               "Reports, publications and registrations refused by fencing, order or shape");
  for (int i = 0; i < kRefusals; ++i) {
    refused_[static_cast<size_t>(i)] = &refusals.Add({{"reason", to_string(static_cast<Refusal>(i))}});
  }
  for (int i = 0; i < kJobStates; ++i) {
    jobs_by_state_[static_cast<size_t>(i)] =
        &jobs_.Add({{"state", std::string(to_string(static_cast<JobState>(i)))}});
  }
  const std::array<const char*, 4> workers = {"free", "assigned", "draining", "lost"};
  for (size_t i = 0; i < workers.size(); ++i) workers_by_state_[i] = &workers_.Add({{"state", workers[i]}});
  for (size_t i = 0; i < devices_by_state_.size(); ++i)
    devices_by_state_[i] = &devices_.Add({{"state", workers[i]}});
}

Telemetry::~Telemetry() = default;

void Telemetry::record(const Observation& observation) {
  std::visit([this](const auto& seen) { (*this)(seen); }, observation);
}

void Telemetry::set_census(const Census& census) {
  for (size_t i = 0; i < jobs_by_state_.size(); ++i)
    jobs_by_state_[i]->Set(static_cast<double>(census.jobs[i]));
  const std::array<int64_t, 4> workers = {census.workers_free, census.workers_assigned,
                                          census.workers_draining, census.workers_lost};
  for (size_t i = 0; i < workers.size(); ++i) workers_by_state_[i]->Set(static_cast<double>(workers[i]));
  devices_by_state_[0]->Set(static_cast<double>(census.devices_free));
  devices_by_state_[1]->Set(static_cast<double>(census.devices_busy));
}

Telemetry::JobSeries& Telemetry::series_of(const std::string& job) {
  std::unique_ptr<JobSeries>& series = by_job_[job];
  if (!series) {
    series = std::make_unique<JobSeries>();
    const prometheus::Labels labels = {{"training_job", job}};
    series->step = series->keep(step_, step_.Add(labels));
    series->tokens = series->keep(tokens_, tokens_.Add(labels));
    series->step_seconds = series->keep(step_seconds_, step_seconds_.Add(labels, decades(1e-3, 6)));
  }
  return *series;
}

void Telemetry::operator()(const StepCommitted& step) {
  JobSeries& series = series_of(step.job);
  series.step->Set(static_cast<double>(step.step));
  series.tokens->Increment(static_cast<double>(step.tokens));
  series.step_seconds->Observe(step.seconds);
  if (step.loss) {
    if (!series.loss) series.loss = series.keep(loss_, loss_.Add({{"training_job", step.job}}));
    series.loss->Set(*step.loss);
  }
  if (step.validation_loss) {
    Gauge*& gauge = series.validation_loss;
    if (!gauge) gauge = series.keep(validation_loss_, validation_loss_.Add({{"training_job", step.job}}));
    gauge->Set(*step.validation_loss);
  }
  std::map<StageIndex, StageOfStep> stages;
  for (const StepReport& report : step.reports) {
    record_rank(series, step.job, report);
    for (const StageTimes& times : report.stages) stages[times.stage].add(report, times);
  }
  for (const auto& [index, stage] : stages) record_stage(series, step.job, index, stage);
  record_loads(series, step);
}

void Telemetry::record_loads(JobSeries& series, const StepCommitted& step) {
  std::map<StageIndex, double> stages;
  for (const auto& [layer, of_layer] : rows_by_layer(step.reports)) {
    double& ratio = stages[of_layer.stage];
    ratio = std::max(ratio, busiest_to_mean(of_layer.rows));
  }
  for (const auto& [stage, ratio] : stages)
    series.gauge(expert_load_, step.job, {{"stage", std::to_string(stage.value)}}).Set(ratio);
}

void Telemetry::record_rank(JobSeries& series, const std::string& job, const StepReport& report) {
  const std::string rank = std::to_string(report.rank.value);
  if (report.wall_seconds > 0) {
    series.gauge(bubble_ratio_, job, {{"rank", rank}}).Set(report.wait_seconds / report.wall_seconds);
  }
  for (const MemoryKind& kind : report.memory) {
    series.gauge(memory_peak_, job, {{"kind", kind.kind}, {"rank", rank}})
        .Set(static_cast<double>(kind.bytes_peak));
  }
}

void Telemetry::record_stage(JobSeries& series, const std::string& job, StageIndex index,
                             const StageOfStep& stage) {
  const std::string name = std::to_string(index.value);
  const auto set_seconds = [&](const char* action, double seconds) {
    series.gauge(stage_seconds_, job, {{"action", action}, {"stage", name}}).Set(seconds);
  };
  const auto set_slots = [&](Gauges& family, const char* state, int64_t slots) {
    series.gauge(family, job, {{"stage", name}, {"state", state}}).Set(static_cast<double>(slots));
  };
  const StageTimes& times = stage.times;
  const bool is_split = times.input_gradient_seconds + times.weight_gradient_seconds > 0;
  set_seconds("F", times.forward_seconds);
  if (is_split) {
    set_seconds("I", times.input_gradient_seconds);
    set_seconds("W", times.weight_gradient_seconds);
  } else {
    set_seconds("B", times.backward_seconds);
  }
  set_seconds("wait", stage.wait_seconds);
  set_slots(activation_slots_, "total", times.activation_slots);
  set_slots(activation_slots_, "peak", times.activation_slots_peak);
  if (stage.payload_slots == 0) return;  // it has no experts
  set_slots(payload_slots_, "total", stage.payload_slots);
  set_slots(payload_slots_, "held", stage.payload_held);
  set_slots(payload_slots_, "peak", stage.payload_peak);
  series.gauge(payload_oldest_lease_, job, {{"stage", name}}).Set(stage.payload_oldest_lease_seconds);
}

void Telemetry::operator()(const LeaseExpired&) {
  lease_expirations_.Increment();
}

void Telemetry::operator()(const ReportRefused& refused) {
  refused_[static_cast<size_t>(refused.refusal)]->Increment();
}

void Telemetry::operator()(const JobRetired& retired) {
  auto series = by_job_.find(retired.job);
  if (series == by_job_.end()) return;
  for (const auto& remove : series->second->removals) remove();
  by_job_.erase(series);
}

}  // namespace penstock::coordinator
