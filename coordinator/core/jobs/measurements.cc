#include "coordinator/core/jobs/measurements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "coordinator/core/jobs/sample_window.h"

namespace penstock::coordinator {
namespace {

constexpr size_t kSamplesOfAnAttempt = 1 << 18;  // all series together, about
constexpr size_t kWindowLeast = 4;
constexpr size_t kWindowMost = 64;
// A forward, and a backward or its halves; those of a layer of two types; and of its rank optimizer, wait, its parts and step,
// since a rank holds a stage at least.
constexpr size_t kSeriesOfAStage = 12;

void keep_newest(std::vector<float>& samples, float sample, size_t window) {
  samples.push_back(sample);
  if (samples.size() >= 2 * window)
    samples.erase(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(window));
}

double seconds_of(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e9;
}

// Nearest rank, of sorted samples.
double quantile(const std::vector<float>& sorted, double fraction) {
  const auto place = static_cast<size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(place, 1, sorted.size()) - 1];
}

MeasuredKind kind_of(plan::ActionKind kind) {
  switch (kind) {
    case plan::ActionKind::Forward:
      return MeasuredKind::Forward;
    case plan::ActionKind::Backward:
      return MeasuredKind::Backward;
    case plan::ActionKind::InputGradient:
      return MeasuredKind::InputGradient;
    case plan::ActionKind::WeightGradient:
      return MeasuredKind::WeightGradient;
  }
  return MeasuredKind::Forward;
}

}  // namespace

size_t sample_window(size_t held) {
  return std::clamp(kSamplesOfAnAttempt / std::max<size_t>(1, kSeriesOfAStage * held), kWindowLeast,
                    kWindowMost);
}

MedianAndTail summarised(const std::vector<float>& samples) {
  if (samples.empty()) return {};
  std::vector<float> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  return {quantile(sorted, 0.5), quantile(sorted, 0.95)};
}

void Measurements::begin(int64_t attempt, const std::string& schedule, std::vector<std::string> stages,
                         size_t held) {
  // An attempt that did no step has nothing to say.
  if (!attempts_.empty() && attempts_.back().steps == 0) attempts_.pop_back();
  window_ = sample_window(held);
  reported_ = 0;
  loads_ = {};
  places_.clear();
  attempts_.push_back({.attempt = attempt, .schedule = schedule, .stages = std::move(stages)});
  if (attempts_.size() > kAttemptsMeasured) attempts_.pop_front();
}

void Measurements::restore(AttemptMeasurements attempt) {
  attempts_.push_back(std::move(attempt));
  if (attempts_.size() > kAttemptsMeasured) attempts_.pop_front();
}

// Ranks report the same series in the same order in every step: what is looked for stands at `place`, mostly.
MeasuredSeries* Measurements::find(size_t& place, const Key& key) {
  std::vector<MeasuredSeries>& all = attempts_.back().series;
  const auto is_of_key = [&](const MeasuredSeries& series) {
    return Key{series.rank, series.stage, series.kind, series.layer} == key;
  };
  if (place >= all.size() || !is_of_key(all[place])) {
    const auto known = places_.find(key);
    if (known == places_.end() && all.size() >= kSeriesMax) return nullptr;
    place = known == places_.end() ? all.size() : known->second;
    if (known == places_.end()) {
      places_.emplace(key, place);
      all.push_back({.rank = key.rank, .stage = key.stage, .kind = key.kind, .layer = key.layer});
    }
  }
  return &all[place++];
}

void Measurements::add_sample(size_t& place, const Key& key, double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return;
  MeasuredSeries* series = find(place, key);
  if (series == nullptr) return;
  ++series->count;
  keep_newest(series->seconds, static_cast<float>(seconds), window_);
}

void Measurements::add(const std::vector<StepReport>& reports) {
  if (attempts_.empty() || window_ == 0 || ++reported_ <= kWarmUpSteps) return;
  ++attempts_.back().steps;
  loads_.add(reports, attempts_.back().expert_loads, attempts_.back().history);
  size_t place = 0;
  for (const StepReport& report : reports) {
    const auto add = [&](StageIndex stage, MeasuredKind kind, double seconds) {
      add_sample(place, {report.rank, stage, kind}, seconds);
    };
    add({}, MeasuredKind::Step, report.wall_seconds);
    add({}, MeasuredKind::Wait, report.wait_seconds);
    add({}, MeasuredKind::Optimizer, report.optimizer_seconds);
    for (const StageTimes& times : report.stages) {
      add(times.stage, MeasuredKind::Forward, times.forward_seconds);
      const bool split = times.input_gradient_seconds > 0 || times.weight_gradient_seconds > 0;
      if (!split || times.backward_seconds > 0)
        add(times.stage, MeasuredKind::Backward, times.backward_seconds);
      if (!split) continue;
      add(times.stage, MeasuredKind::InputGradient, times.input_gradient_seconds);
      add(times.stage, MeasuredKind::WeightGradient, times.weight_gradient_seconds);
    }
  }
}

void Measurements::add(const StepTrace& trace) {
  if (attempts_.empty() || window_ == 0) return;
  std::map<std::pair<StageIndex, MeasuredKind>, std::pair<double, int>> sums;  // seconds, works
  for (const TracedWork& work : trace.works) {
    auto& [seconds, works] = sums[{work.work.stage, kind_of(work.work.kind)}];
    seconds += seconds_of(work.cpu_ns);
    ++works;
  }
  size_t place = 0;
  for (const auto& [of, sum] : sums) {
    MeasuredSeries* series = find(place, {trace.rank, of.first, of.second});
    if (series == nullptr) return;
    keep_newest(series->cpu_seconds, static_cast<float>(sum.first / sum.second), window_);
  }
  for (const TracedLayer& layer : trace.layers) {
    add_sample(place, {trace.rank, layer.stage, MeasuredKind::LayerForward, layer.type},
               seconds_of(layer.forward_ns));
    add_sample(place, {trace.rank, layer.stage, MeasuredKind::LayerBackward, layer.type},
               seconds_of(layer.backward_ns));
  }
}

void Measurements::add(const std::vector<WaitParts>& waits) {
  if (attempts_.empty() || window_ == 0) return;
  size_t place = 0;
  for (size_t rank = 0; rank < waits.size(); ++rank) {
    const RankIndex index(static_cast<int64_t>(rank));
    add_sample(place, {index, {}, MeasuredKind::WaitDependency}, seconds_of(waits[rank].dependency_ns));
    add_sample(place, {index, {}, MeasuredKind::WaitTransfer}, seconds_of(waits[rank].transfer_ns));
  }
}

void Measurements::set_memory(const std::vector<RankMemoryView>& ranks) {
  if (!attempts_.empty() && window_ > 0) attempts_.back().memory = ranks;
}

size_t Measurements::bytes() const {
  size_t all = 0;
  for (const AttemptMeasurements& attempt : attempts_) {
    for (const RankMemoryView& rank : attempt.memory) all += sizeof(MemoryUseView) * rank.size();
    for (const LayerLoad& layer : attempt.expert_loads)
      all += sizeof(layer) + sizeof(int64_t) * layer.rows.size() + sizeof(float) * layer.ratio.size();
    all += sizeof(int64_t) * attempt.history.steps.size();
    for (const StageHistory& stage : attempt.history.stages)
      all += sizeof(stage) + sizeof(float) * (stage.seconds.size() + stage.load.size());
    for (const MeasuredSeries& series : attempt.series) {
      all += sizeof(series) + sizeof(float) * (series.seconds.size() + series.cpu_seconds.size());
    }
  }
  return all;
}

}  // namespace penstock::coordinator
