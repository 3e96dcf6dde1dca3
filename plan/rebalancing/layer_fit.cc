#include "plan/rebalancing/layer_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "plan/spec/layer_type.h"

namespace penstock::plan {
namespace {

constexpr double kNearlyNothingMs = 1e-6;

// By what the sampled layers of a stage are to be multiplied to make up the stage: single steps were traced, and a stage's median
// is over all. 1 where not all of its types were sampled. `left`: its layers.
double share_of_stage(LayerCounts left, const std::vector<LayerSamples>& layers, double stage_seconds,
                      double LayerSamples::*seconds) {
  double sum = 0;
  for (const LayerSamples& layer : layers) {
    const auto count = left.find(name_of(layer.type));
    if (count == left.end()) continue;
    sum += count->second * layer.*seconds;
    left.erase(count);
  }
  return left.empty() && sum > 0 ? stage_seconds / sum : 1;
}

// Single layers, where they were sampled: as stages that hold nothing else.
void add_layers(const JobSpec& job, const MeasuredRun& run, double tokens,
                std::vector<StageMeasurement>& stages) {
  std::map<int, std::vector<LayerSamples>> by_stage;
  for (const LayerSamples& layer : run.layers) by_stage[layer.stage].push_back(layer);
  for (const auto& [stage, layers] : by_stage) {
    const auto at = static_cast<size_t>(stage);
    const LayerCounts counts = layer_counts(job, run.split[at]);
    const double forward =
        share_of_stage(counts, layers, forward_seconds(run.stages[at]), &LayerSamples::forward_seconds);
    const double backward =
        share_of_stage(counts, layers, backward_seconds(run.stages[at]), &LayerSamples::backward_seconds);
    for (const LayerSamples& layer : layers) {
      if (stages.size() >= kMeasurementsMax) return;
      stages.push_back({.layers = {{name_of(layer.type), 1}},
                        .forward_ms = std::max(kNearlyNothingMs, 1e3 * forward * layer.forward_seconds),
                        .backward_ms = std::max(kNearlyNothingMs, 1e3 * backward * layer.backward_seconds),
                        .tokens = tokens,
                        .worker = ""});
    }
  }
}

std::vector<StageMeasurement> stages_of(const std::vector<JobRuns>& measured) {
  std::vector<StageMeasurement> stages;
  for (const JobRuns& of_job : measured) {
    const auto tokens = static_cast<double>(of_job.job->tokens_per_microbatch());
    for (const MeasuredRun& run : of_job.runs) {
      for (size_t stage = 0; stage < run.stages.size(); ++stage) {
        stages.push_back({.layers = layer_counts(*of_job.job, run.split[stage]),
                          .forward_ms = 1e3 * forward_seconds(run.stages[stage]),
                          .backward_ms = 1e3 * backward_seconds(run.stages[stage]),
                          .tokens = tokens,
                          .worker = ""});
      }
      add_layers(*of_job.job, run, tokens, stages);
    }
  }
  return stages;
}

// A stage that is an embedding alone and takes next to nothing, at every size.
void add_free_embedding(std::vector<StageMeasurement>& stages) {
  std::set<double> sizes;
  for (const StageMeasurement& stage : stages) sizes.insert(*stage.tokens);
  for (const double tokens : sizes) {
    stages.push_back({.layers = {{"embedding", 1}},
                      .forward_ms = kNearlyNothingMs,
                      .backward_ms = kNearlyNothingMs,
                      .tokens = tokens,
                      .worker = ""});
  }
}

}  // namespace

std::string cost_type_of(const JobSpec& job, const Item& item) {
  return name_of(layer_type_of(job, item));
}

LayerCounts layer_counts(const JobSpec& job, const std::vector<Item>& items) {
  LayerCounts counts;
  for (const Item& item : items) ++counts[cost_type_of(job, item)];
  return counts;
}

StatusOr<LayerFit> fit_layers(const std::vector<JobRuns>& measured) {
  std::vector<StageMeasurement> stages = stages_of(measured);
  const size_t count = stages.size();
  StatusOr<FittedTimes> times = fit_layer_times(stages);
  if (times.ok() || stages.empty()) {
    PENSTOCK_RETURN_IF_ERROR(times.status());
    return LayerFit{*std::move(times), "", count};
  }
  add_free_embedding(stages);
  times = fit_layer_times(stages);
  if (times.ok())
    return LayerFit{*std::move(times),
                    "these stages cannot tell the embedding from the blocks: it is taken as nothing", count};
  return with_context(
      times.status(),
      "the measured stages do not say what a layer of each type costs; a run with another split would");
}

double update_ns_per_byte(const MeasuredRun& run, const JobSpec& job, const LayerCosts& bytes) {
  const std::vector<double>& ranks = run.optimizer_seconds;
  const double seconds = std::accumulate(ranks.begin(), ranks.end(), 0.0) / job.parallel.pipelines();
  double all = 0;
  for (const LayerCost& layer : bytes.layers) all += static_cast<double>(layer.keep.static_bytes);
  return seconds > 0 && std::isfinite(seconds) && all > 0 ? 1e9 * seconds / all : 0;
}

bool updates_wait(const JobSpec& job) {
  return !job.is_asynchronous() && job.parallel.optimizer_step == "barrier";
}

void add_update(double ns_per_byte, const LayerCosts& bytes, LayerCosts& times) {
  times.update_ns.clear();
  for (const LayerCost& layer : bytes.layers)
    times.update_ns.push_back(std::llround(ns_per_byte * static_cast<double>(layer.keep.static_bytes)));
}

}  // namespace penstock::plan
