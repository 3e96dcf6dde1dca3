#include "client/present/measured_runs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/diagnosis/statistics.h"

namespace penstock::client {
namespace {

std::vector<double> samples_of(const v1::MeasuredSeries& series) {
  return {series.samples().begin(), series.samples().end()};
}

// Both halves of a backward together, sample by sample; the newest ones where one series is longer.
std::vector<double> added(const std::vector<double>& a, const std::vector<double>& b) {
  const size_t count = std::min(a.size(), b.size());
  std::vector<double> sum;
  for (size_t i = 0; i < count; ++i) sum.push_back(a[a.size() - count + i] + b[b.size() - count + i]);
  return sum;
}

void keep_newest(std::vector<double>& samples, size_t count) {
  samples.erase(samples.begin(), samples.end() - static_cast<std::ptrdiff_t>(count));
}

using SeriesByKind = std::map<v1::MeasuredKind, std::vector<double>>;

plan::StageSamples stage_samples(int rank, SeriesByKind& series) {
  plan::StageSamples samples;
  samples.rank = rank;
  samples.forward_seconds = std::move(series[v1::MEASURED_KIND_FORWARD]);
  samples.backward_seconds = std::move(series[v1::MEASURED_KIND_BACKWARD]);
  if (samples.backward_seconds.empty()) {
    samples.backward_seconds =
        added(series[v1::MEASURED_KIND_INPUT_GRADIENT], series[v1::MEASURED_KIND_WEIGHT_GRADIENT]);
  }
  const size_t count = std::min(samples.forward_seconds.size(), samples.backward_seconds.size());
  keep_newest(samples.forward_seconds, count);
  keep_newest(samples.backward_seconds, count);
  return samples;
}

StatusOr<plan::Split> split_of(const v1::AttemptMeasurements& attempt) {
  plan::Split split;
  for (const v1::StageItems& stage : attempt.stages()) {
    split.emplace_back();
    for (const std::string& text : stage.items()) {
      PENSTOCK_ASSIGN_OR_RETURN(const plan::Item item, plan::parse_item(text));
      split.back().push_back(item);
    }
  }
  return split;
}

// The slowest rank's: all meet at the end of a step, but where weights are asynchronous.
std::vector<double> slowest(std::vector<std::vector<double>> steps) {
  std::erase_if(steps, [](const std::vector<double>& rank) { return rank.empty(); });
  if (steps.empty()) return {};
  return *std::max_element(steps.begin(), steps.end(),
                           [](const auto& a, const auto& b) { return plan::median(a) < plan::median(b); });
}

StatusOr<plan::MeasuredRun> measured_run(const v1::AttemptMeasurements& attempt) {
  plan::MeasuredRun run;
  run.schedule = attempt.schedule();
  PENSTOCK_ASSIGN_OR_RETURN(run.split, split_of(attempt));
  std::map<std::pair<int, int>, SeriesByKind> of_stages;  // by stage and rank
  std::vector<std::vector<double>> steps;
  for (const v1::MeasuredSeries& series : attempt.series()) {
    if (series.stage() >= static_cast<int>(run.split.size()))
      return invalid_argument("attempt {}: measurements of stage {} of {}", attempt.attempt(), series.stage(),
                              run.split.size());
    if (series.stage() >= 0) {
      of_stages[{series.stage(), series.rank()}][series.kind()] = samples_of(series);
    } else if (series.kind() == v1::MEASURED_KIND_STEP) {
      steps.push_back(samples_of(series));
    } else if (series.kind() == v1::MEASURED_KIND_OPTIMIZER) {
      run.optimizer_seconds.push_back(series.median_seconds());
    }
  }
  run.stages.resize(run.split.size());
  for (auto& [of, series] : of_stages)
    run.stages[static_cast<size_t>(of.first)].push_back(stage_samples(of.second, series));
  run.step_seconds = slowest(std::move(steps));
  return run;
}

}  // namespace

StatusOr<std::vector<plan::MeasuredRun>> measured_runs(const v1::MeasurementsResponse& response) {
  std::vector<plan::MeasuredRun> runs;
  for (const v1::AttemptMeasurements& attempt : response.attempts()) {
    PENSTOCK_ASSIGN_OR_RETURN(plan::MeasuredRun run, measured_run(attempt));
    if (const Status status = plan::check_run(run); !status.ok())
      return with_context(status, fmt::format("attempt {}", attempt.attempt()));
    runs.push_back(std::move(run));
  }
  if (runs.empty()) return invalid_argument("no attempt is measured");
  return runs;
}

}  // namespace penstock::client
