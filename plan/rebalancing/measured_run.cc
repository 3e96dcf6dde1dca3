#include "plan/rebalancing/measured_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/diagnosis/statistics.h"
#include "plan/rebalancing/slow_worker.h"

namespace penstock::plan {
namespace {

double over_ranks(const std::vector<StageSamples>& stage, std::vector<double> StageSamples::*samples) {
  std::vector<double> medians;
  for (const StageSamples& rank : stage) medians.push_back(median(rank.*samples));
  return lower_median(std::move(medians));
}

// Half `which` (0 or 1) of `values`.
std::vector<double> half_of(const std::vector<double>& values, int which) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  return which == 0 ? std::vector<double>(values.begin(), middle) : std::vector<double>(middle, values.end());
}

// What its stage sticks out by is the worker's, then; so is what the stages of one pipeline could not tell.
void blame(const SlowWorkerOfStage& worker, Diagnosis& diagnosis) {
  Judgement verdict{.finding = Finding::Straggler,
                    .stages = {worker.stage},
                    .replica = 0,
                    .factor = worker.factor(),
                    .gain = 1 - 1 / worker.factor(),
                    .because = to_string(worker),
                    .advice = "drain it, or take from it what slows it down; do not move layers"};
  for (const int rank : worker.ranks)
    verdict.workers.push_back(
        {{worker.stage}, static_cast<int>(verdict.workers.size()), rank, worker.factor()});
  std::erase_if(diagnosis.verdicts, [&](const Judgement& other) {
    const bool is_of_stage =
        std::find(other.stages.begin(), other.stages.end(), worker.stage) != other.stages.end();
    return other.finding == Finding::Balanced || (other.finding == Finding::Imbalance && is_of_stage);
  });
  diagnosis.verdicts.insert(diagnosis.verdicts.begin(), std::move(verdict));
}

bool are_times(const std::vector<double>& seconds) {
  return std::all_of(seconds.begin(), seconds.end(),
                     [](double value) { return std::isfinite(value) && value > 0 && value < 1e6; });
}

Status check_samples(const StageSamples& samples, size_t stage) {
  const size_t forwards = samples.forward_seconds.size(), backwards = samples.backward_seconds.size();
  if (forwards == 0 || forwards != backwards) {
    return invalid_argument(
        "stage {} on rank {}: expected as many forwards as backwards, at least one, found {} and {}", stage,
        samples.rank, forwards, backwards);
  }
  if (are_times(samples.forward_seconds) && are_times(samples.backward_seconds)) return ok_status();
  return invalid_argument("stage {} on rank {}: expected times above 0", stage, samples.rank);
}

}  // namespace

Status check_run(const MeasuredRun& run) {
  if (run.stages.empty() || run.stages.size() != run.split.size()) {
    return invalid_argument("measured stages: expected {}, as the split has, found {}", run.split.size(),
                            run.stages.size());
  }
  for (size_t stage = 0; stage < run.stages.size(); ++stage) {
    if (run.stages[stage].empty() || run.stages[stage].size() != run.stages[0].size()) {
      return invalid_argument("stage {}: expected measurements of {} ranks, found {}", stage,
                              run.stages[0].size(), run.stages[stage].size());
    }
    for (const StageSamples& samples : run.stages[stage])
      PENSTOCK_RETURN_IF_ERROR(check_samples(samples, stage));
  }
  for (const LayerSamples& layer : run.layers) {
    const bool is_time = layer.forward_seconds >= 0 && layer.backward_seconds >= 0 &&
                         layer.forward_seconds < 1e6 && layer.backward_seconds < 1e6;
    if (layer.stage >= 0 && static_cast<size_t>(layer.stage) < run.stages.size() && is_time) continue;
    return invalid_argument("layers of stage {} of {}: expected times of 0 or more", layer.stage,
                            run.stages.size());
  }
  if (run.step_seconds.empty() || !are_times(run.step_seconds))
    return invalid_argument("steps: expected times above 0, at least one");
  return ok_status();
}

double forward_seconds(const std::vector<StageSamples>& stage) {
  return over_ranks(stage, &StageSamples::forward_seconds);
}

double backward_seconds(const std::vector<StageSamples>& stage) {
  return over_ranks(stage, &StageSamples::backward_seconds);
}

double step_seconds(const MeasuredRun& run) {
  return median(run.step_seconds);
}

int64_t measured_steps(const MeasuredRun& run) {
  size_t least = std::numeric_limits<size_t>::max();
  for (const auto& stage : run.stages) {
    for (const StageSamples& rank : stage) least = std::min(least, rank.forward_seconds.size());
  }
  return run.stages.empty() ? 0 : static_cast<int64_t>(least);
}

std::vector<MeasuredRun> halves_of(const MeasuredRun& run) {
  if (measured_steps(run) < 2 || run.step_seconds.size() < 2) return {};
  std::vector<MeasuredRun> halves;
  for (const int which : {0, 1}) {
    MeasuredRun& half = halves.emplace_back(run);
    half.step_seconds = half_of(run.step_seconds, which);
    for (auto& stage : half.stages) {
      for (StageSamples& rank : stage) {
        rank.forward_seconds = half_of(rank.forward_seconds, which);
        rank.backward_seconds = half_of(rank.backward_seconds, which);
      }
    }
  }
  return halves;
}

StatusOr<Diagnosis> diagnose_run(const MeasuredRun& run) {
  PENSTOCK_RETURN_IF_ERROR(check_run(run));
  StageTrace trace;
  for (const auto& stage : run.stages) {
    std::vector<CellSamples>& cells = trace.cells.emplace_back();
    std::vector<int>& ranks = trace.ranks.emplace_back();
    for (const StageSamples& rank : stage) {
      ranks.push_back(rank.rank);
      CellSamples& cell = cells.emplace_back();
      for (const double seconds : rank.forward_seconds) cell.forward_ms.push_back(1e3 * seconds);
      for (const double seconds : rank.backward_seconds) cell.backward_ms.push_back(1e3 * seconds);
    }
  }
  trace.layers_tell_workers = layers_tell_workers(run);
  PENSTOCK_ASSIGN_OR_RETURN(Diagnosis diagnosis, diagnose(trace));
  const std::optional<SlowWorkerOfStage> worker = slow_worker(run);
  if (worker && diagnosis.of(Finding::Straggler) == nullptr) blame(*worker, diagnosis);
  return diagnosis;
}

}  // namespace penstock::plan
