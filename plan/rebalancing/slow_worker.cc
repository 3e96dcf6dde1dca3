#include "plan/rebalancing/slow_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/text.h"

namespace penstock::plan {
namespace {

// Does the same work wherever it stands, and was looked at often enough.
bool tells_workers(const LayerSamples& layer) {
  return (layer.type == LayerType::Block || layer.type == LayerType::RecomputedBlock) &&
         layer.steps >= kStepsLeast;
}

double ms_of(const LayerSamples& layer) {
  return 1e3 * (layer.forward_seconds + layer.backward_seconds);
}

// Ascending, of layers that tell workers: one of each stage that has the type.
using TimesByType = std::map<LayerType, std::vector<double>>;

TimesByType times_by_type(const MeasuredRun& run) {
  TimesByType times;
  for (const LayerSamples& layer : run.layers) {
    if (tells_workers(layer)) times[layer.type].push_back(ms_of(layer));
  }
  for (auto& [type, ms] : times) std::sort(ms.begin(), ms.end());
  return times;
}

// The lower median of all but one, which is `without`; of two at least.
double median_of_others(const std::vector<double>& ascending, double without) {
  const auto own =
      static_cast<size_t>(std::lower_bound(ascending.begin(), ascending.end(), without) - ascending.begin());
  const size_t middle = (ascending.size() - 2) / 2;
  return ascending[middle < own ? middle : middle + 1];
}

std::vector<int> ranks_of(const std::vector<StageSamples>& stage) {
  std::vector<int> ranks;
  for (const StageSamples& samples : stage) ranks.push_back(samples.rank);
  return ranks;
}

}  // namespace

bool layers_tell_workers(const MeasuredRun& run) {
  const TimesByType times = times_by_type(run);
  return std::any_of(times.begin(), times.end(),
                     [](const auto& of_type) { return of_type.second.size() > 1; });
}

std::optional<SlowWorkerOfStage> slow_worker(const MeasuredRun& run) {
  const TimesByType times = times_by_type(run);
  std::optional<SlowWorkerOfStage> slowest;
  for (const LayerSamples& layer : run.layers) {
    const auto same = times.find(layer.type);
    if (!tells_workers(layer) || same->second.size() < 2) continue;
    const double ms = ms_of(layer), others_ms = median_of_others(same->second, ms);
    if (!(1e3 * layer.least_seconds > kSlowWorker * others_ms) || others_ms <= 0) continue;
    if (slowest && ms / others_ms <= slowest->factor()) continue;
    slowest = {layer.stage, ranks_of(run.stages[static_cast<size_t>(layer.stage)]), layer.type, ms,
               others_ms};
  }
  return slowest;
}

std::string to_string(const SlowWorkerOfStage& worker) {
  std::vector<std::string> ranks;
  for (const int rank : worker.ranks) ranks.push_back(std::to_string(rank));
  const bool is_one = ranks.size() == 1;
  return fmt::format(
      "{} {} {:.2f} times as long for a {} as other ranks ({:.1f} ms against {:.1f} ms): {}",
      (is_one ? "rank " : "ranks ") + join(ranks, ", "), is_one ? "takes" : "take", worker.factor(),
      name_of(worker.type), worker.ms, worker.others_ms,
      is_one ? "its worker is slow, not its layers" : "their workers are slow, not their layers");
}

}  // namespace penstock::plan
