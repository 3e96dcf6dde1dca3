#include "plan/rebalancing/slow_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "plan/diagnosis/statistics.h"

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

std::vector<double> others_of(const MeasuredRun& run, const LayerSamples& layer) {
  std::vector<double> ms;
  for (const LayerSamples& other : run.layers) {
    if (other.type == layer.type && other.stage != layer.stage && tells_workers(other))
      ms.push_back(ms_of(other));
  }
  return ms;
}

std::vector<int> ranks_of(const std::vector<StageSamples>& stage) {
  std::vector<int> ranks;
  for (const StageSamples& samples : stage) ranks.push_back(samples.rank);
  return ranks;
}

}  // namespace

bool layers_tell_workers(const MeasuredRun& run) {
  return std::any_of(run.layers.begin(), run.layers.end(), [&](const LayerSamples& layer) {
    return tells_workers(layer) && !others_of(run, layer).empty();
  });
}

std::optional<SlowWorkerOfStage> slow_worker(const MeasuredRun& run) {
  std::optional<SlowWorkerOfStage> slowest;
  for (const LayerSamples& layer : run.layers) {
    std::vector<double> others = others_of(run, layer);
    if (!tells_workers(layer) || others.empty()) continue;
    const SlowWorkerOfStage worker{layer.stage, ranks_of(run.stages[static_cast<size_t>(layer.stage)]),
                                   layer.type, ms_of(layer), lower_median(std::move(others))};
    if (!(1e3 * layer.least_seconds > kSlowWorker * worker.others_ms) || worker.others_ms <= 0) continue;
    if (!slowest || worker.factor() > slowest->factor()) slowest = worker;
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
