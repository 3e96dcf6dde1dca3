#include "plan/rebalancing/sampled_attempt.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "plan/diagnosis/statistics.h"

namespace penstock::plan {
namespace {

void keep_newest(std::vector<double>& samples, size_t count) {
  samples.erase(samples.begin(), samples.end() - static_cast<std::ptrdiff_t>(count));
}

std::vector<double> added(std::vector<double> a, std::vector<double> b) {
  const size_t count = std::min(a.size(), b.size());
  keep_newest(a, count);
  keep_newest(b, count);
  for (size_t i = 0; i < count; ++i) a[i] += b[i];
  return a;
}

using SeriesByWork = std::map<SampledWork, std::vector<double>>;

StageSamples stage_samples(int rank, SeriesByWork& series) {
  StageSamples samples;
  samples.rank = rank;
  samples.forward_seconds = std::move(series[SampledWork::Forward]);
  samples.backward_seconds = std::move(series[SampledWork::Backward]);
  if (samples.backward_seconds.empty()) {
    samples.backward_seconds =
        added(std::move(series[SampledWork::InputGradient]), std::move(series[SampledWork::WeightGradient]));
  }
  const size_t count = std::min(samples.forward_seconds.size(), samples.backward_seconds.size());
  keep_newest(samples.forward_seconds, count);
  keep_newest(samples.backward_seconds, count);
  return samples;
}

// Of the ranks of a stage.
struct SampledLayer {
  std::vector<double> medians;
  double least = std::numeric_limits<double>::infinity();
  size_t steps = std::numeric_limits<size_t>::max();

  void add(const std::vector<double>& seconds) {
    medians.push_back(median(seconds));
    least = std::min(least, *std::min_element(seconds.begin(), seconds.end()));
    steps = std::min(steps, seconds.size());
  }
};
// By stage, type and whether they are backwards.
using LayersOfRanks = std::map<std::tuple<int, LayerType, bool>, SampledLayer>;

std::vector<LayerSamples> layer_samples(const LayersOfRanks& sampled) {
  std::vector<LayerSamples> layers;
  for (const auto& [of, forward] : sampled) {
    const auto& [stage, type, is_backward] = of;
    const auto found = sampled.find({stage, type, true});
    if (is_backward || found == sampled.end()) continue;
    const SampledLayer& backward = found->second;
    layers.push_back({stage, type, lower_median(forward.medians), lower_median(backward.medians),
                      static_cast<int64_t>(std::min(forward.steps, backward.steps)),
                      forward.least + backward.least});
  }
  return layers;
}

// All ranks meet at the end of a step, but where weights are asynchronous.
std::vector<double> slowest(std::vector<std::vector<double>> steps) {
  std::erase_if(steps, [](const std::vector<double>& rank) { return rank.empty(); });
  if (steps.empty()) return {};
  return *std::max_element(steps.begin(), steps.end(),
                           [](const auto& a, const auto& b) { return median(a) < median(b); });
}

StatusOr<Split> split_of(const std::vector<std::vector<std::string>>& stages) {
  Split split;
  for (const std::vector<std::string>& items : stages) {
    std::vector<Item>& stage = split.emplace_back();
    for (const std::string& text : items) {
      PENSTOCK_ASSIGN_OR_RETURN(const Item item, parse_item(text));
      stage.push_back(item);
    }
  }
  return split;
}

}  // namespace

StatusOr<MeasuredRun> run_of(const SampledAttempt& attempt) {
  MeasuredRun run;
  run.schedule = attempt.schedule;
  PENSTOCK_ASSIGN_OR_RETURN(run.split, split_of(attempt.stages));
  std::map<std::pair<int, int>, SeriesByWork> of_stages;  // by stage and rank
  LayersOfRanks layers;
  std::vector<std::vector<double>> steps;
  for (const SampledSeries& series : attempt.series) {
    if (series.stage >= static_cast<int>(run.split.size()))
      return invalid_argument("measurements of stage {} of {}", series.stage, run.split.size());
    if (series.stage >= 0 && series.layer) {
      const bool is_backward = series.work == SampledWork::LayerBackward;
      if (!series.seconds.empty()) layers[{series.stage, *series.layer, is_backward}].add(series.seconds);
    } else if (series.stage >= 0) {
      of_stages[{series.stage, series.rank}][series.work] = series.seconds;
    } else if (series.work == SampledWork::Step) {
      steps.push_back(series.seconds);
    } else if (series.work == SampledWork::Optimizer && !series.seconds.empty()) {
      run.optimizer_seconds.push_back(median(series.seconds));
    }
  }
  run.stages.resize(run.split.size());
  for (auto& [of, series] : of_stages)
    run.stages[static_cast<size_t>(of.first)].push_back(stage_samples(of.second, series));
  run.step_seconds = slowest(std::move(steps));
  run.layers = layer_samples(layers);
  PENSTOCK_RETURN_IF_ERROR(check_run(run));
  return run;
}

SampledRuns runs_of(const std::vector<SampledAttempt>& attempts) {
  SampledRuns sampled;
  for (size_t i = 0; i < attempts.size(); ++i) {
    StatusOr<MeasuredRun> run = run_of(attempts[i]);
    if (run.ok()) {
      sampled.runs.push_back(*std::move(run));
    } else {
      sampled.left_out.push_back(
          {i, fmt::format("attempt {}: {}", attempts[i].number, message(run.status()))});
    }
  }
  return sampled;
}

std::string to_text(const std::vector<LeftOutAttempt>& left_out) {
  std::vector<std::string> texts;
  for (const LeftOutAttempt& each : left_out) texts.push_back(each.why);
  return join(texts, "; ");
}

}  // namespace penstock::plan
