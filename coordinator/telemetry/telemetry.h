// The coordinator's Prometheus families, fed by what the core observes.
//
// Labels are bounded: series of a job (label training_job) live until the job is retired, and the core keeps
// a bounded number of jobs. Children are looked up once and cached. Thread: one at a time, except RpcMetrics,
// which any thread may use; scraping is safe at any time.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/core/probe.h"

namespace penstock::coordinator {

class Telemetry {
 public:
  explicit Telemetry(std::shared_ptr<prometheus::Registry> registry);
  ~Telemetry();

  void record(const Observation& observation);
  void set_census(const Census& census);

 private:
  struct JobSeries;
  struct StageOfStep;

  void operator()(const StepCommitted& step);
  void operator()(const LeaseExpired& expired);
  void operator()(const ReportRefused& refused);
  void operator()(const JobRetired& retired);
  JobSeries& series_of(const std::string& job);
  void record_rank(JobSeries& series, const std::string& job, const StepReport& report);
  void record_loads(JobSeries& series, const StepCommitted& step);
  void record_stage(JobSeries& series, const std::string& job, StageIndex index, const StageOfStep& stage);

  using Gauges = prometheus::Family<prometheus::Gauge>;

  std::shared_ptr<prometheus::Registry> registry_;
  Gauges& jobs_;
  Gauges& workers_;
  Gauges& devices_;
  Gauges& step_;
  Gauges& loss_;
  Gauges& validation_loss_;
  prometheus::Family<prometheus::Counter>& tokens_;
  prometheus::Family<prometheus::Histogram>& step_seconds_;
  Gauges& bubble_ratio_;
  Gauges& stage_seconds_;
  Gauges& memory_peak_;
  Gauges& activation_slots_;
  Gauges& payload_slots_;
  Gauges& payload_oldest_lease_;
  Gauges& expert_load_;
  prometheus::Counter& lease_expirations_;
  std::array<prometheus::Counter*, kRefusals> refused_{};
  std::array<prometheus::Gauge*, kJobStates> jobs_by_state_{};
  std::array<prometheus::Gauge*, 4> workers_by_state_{};  // free, assigned, draining, lost
  std::array<prometheus::Gauge*, 2> devices_by_state_{};  // free, assigned
  std::map<std::string, std::unique_ptr<JobSeries>> by_job_;
};

}  // namespace penstock::coordinator
