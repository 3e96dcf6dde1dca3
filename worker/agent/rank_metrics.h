// What this daemon's ranks measured, for Prometheus: gauges of the last step and histograms over the steps.
//
// Bounds: the series of one rank per device; a device's next rank replaces its last one.
// Thread: any.
#pragma once

#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/codec/messages.h"

namespace penstock::worker {

class RankMetrics {
 public:
  explicit RankMetrics(std::shared_ptr<prometheus::Registry> registry);

  void record(int device, const StepReport& report);
  // Forgets what the device's last rank showed: a new one begins.
  void start_rank(int device);
  void set_session_open(bool open);
  void set_busy_devices(int busy);

 private:
  using Labels = std::map<std::string, std::string>;
  // The series of one device's rank, and how to take each out of its family.
  struct Series {
    std::map<std::string, prometheus::Gauge*> gauges;
    std::map<std::string, prometheus::Histogram*> histograms;
    std::vector<std::function<void()>> removals;
  };
  void set(Series& series, prometheus::Family<prometheus::Gauge>& family, const Labels& labels, double value);
  void observe(Series& series, prometheus::Family<prometheus::Histogram>& family, const Labels& labels,
               double value);
  void record_stage(Series& series, const StepReport& report, const StageTimes& stage);

  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Gauge>& step_;
  prometheus::Family<prometheus::Gauge>& loss_;
  prometheus::Family<prometheus::Gauge>& gradient_norm_;
  prometheus::Family<prometheus::Histogram>& step_seconds_;
  prometheus::Family<prometheus::Histogram>& wait_seconds_;
  prometheus::Family<prometheus::Gauge>& cpu_seconds_;
  prometheus::Family<prometheus::Gauge>& stage_seconds_;
  prometheus::Family<prometheus::Histogram>& action_seconds_;
  prometheus::Family<prometheus::Gauge>& memory_;
  prometheus::Family<prometheus::Gauge>& activation_slots_;
  prometheus::Family<prometheus::Gauge>& payload_slots_;
  prometheus::Family<prometheus::Gauge>& payload_oldest_lease_;
  prometheus::Gauge& session_open_;
  prometheus::Gauge& busy_devices_;

  std::mutex mutex_;
  std::map<int, Series> series_;  // by device
};

}  // namespace penstock::worker
