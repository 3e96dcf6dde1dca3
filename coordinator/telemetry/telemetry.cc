#include "coordinator/telemetry/telemetry.h"

#include <functional>
#include <vector>

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
      stage_seconds_(
          gauges(*registry_, "penstock_stage_seconds",
                 "Median of the last step's actions by stage and action; wait is the rank's, over the step")),
      memory_peak_(
          gauges(*registry_, "penstock_rank_memory_peak_bytes", "Highest accounted memory by rank and kind")),
      payload_slots_(gauges(*registry_, "penstock_payload_slots",
                            "Activation slots by stage: their capacity and the most held at once")),
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
  for (const StepReport& report : step.reports) record_rank(series, step.job, report);
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
  for (const StageTimes& times : report.stages) record_stage(series, job, times, report.wait_seconds);
}

void Telemetry::record_stage(JobSeries& series, const std::string& job, const StageTimes& times,
                             double wait_seconds) {
  const std::string stage = std::to_string(times.stage.value);
  const auto set_seconds = [&](const char* action, double seconds) {
    series.gauge(stage_seconds_, job, {{"action", action}, {"stage", stage}}).Set(seconds);
  };
  const bool is_split = times.input_gradient_seconds + times.weight_gradient_seconds > 0;
  set_seconds("F", times.forward_seconds);
  if (is_split) {
    set_seconds("I", times.input_gradient_seconds);
    set_seconds("W", times.weight_gradient_seconds);
  } else {
    set_seconds("B", times.backward_seconds);
  }
  set_seconds("wait", wait_seconds);
  series.gauge(payload_slots_, job, {{"stage", stage}, {"state", "capacity"}}).Set(times.activation_slots);
  series.gauge(payload_slots_, job, {{"stage", stage}, {"state", "peak"}}).Set(times.activation_slots_peak);
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
