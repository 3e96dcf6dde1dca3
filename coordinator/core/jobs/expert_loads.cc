#include "coordinator/core/jobs/expert_loads.h"

#include <algorithm>
#include <numeric>

namespace penstock::coordinator {
namespace {

using StepRows = std::map<LayerIndex, LayerRows>;

void add_to(std::vector<int64_t>& sums, const std::vector<int64_t>& rows, size_t first = 0) {
  sums.resize(std::max(sums.size(), first + rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) sums[first + i] += rows[i];
}

LayerLoad& layer_in(std::vector<LayerLoad>& layers, LayerIndex layer, StageIndex stage) {
  const auto place = std::lower_bound(layers.begin(), layers.end(), layer,
                                      [](const LayerLoad& each, LayerIndex of) { return each.layer < of; });
  if (place != layers.end() && place->layer == layer) return *place;
  return *layers.insert(place, {.layer = layer, .stage = stage});
}

StageHistory& stage_in(std::vector<StageHistory>& stages, StageIndex stage) {
  const auto found = std::find_if(stages.begin(), stages.end(),
                                  [&](const StageHistory& each) { return each.stage == stage; });
  return found != stages.end() ? *found : stages.emplace_back(StageHistory{.stage = stage});
}

// As point number `place`: one that was not there before has nothing to say of the points before.
void add_point(std::vector<float>& points, size_t place, double value) {
  points.resize(place);
  points.push_back(static_cast<float>(value));
}

template <typename T>
void drop_every_other(std::vector<T>& points) {
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); i += 2) points[kept++] = points[i];
  points.resize(kept);
}

// A stage with experts in one step.
struct StageOfStep {
  double seconds = 0;
  std::vector<int64_t> rank_rows{};  // of each rank that holds it
  bool shared_out = false;           // no rank has all of a layer's experts
  double ratios = 0;                 // of its layers
  int layers = 0;

  double load() const { return shared_out ? busiest_to_mean(rank_rows) : layers == 0 ? 0 : ratios / layers; }
};

void add_rank(const StepReport& report, const StepRows& step, std::map<StageIndex, StageOfStep>& stages) {
  std::map<StageIndex, int64_t> rows;  // of this rank
  for (const ExpertRows& experts : report.expert_rows) {
    rows[experts.stage] += std::accumulate(experts.rows.begin(), experts.rows.end(), int64_t{0});
    stages[experts.stage].shared_out |= experts.rows.size() < step.at(experts.layer).rows.size();
  }
  for (const auto& [stage, sum] : rows) stages[stage].rank_rows.push_back(sum);
  for (const StageTimes& times : report.stages) {
    const auto stage = stages.find(times.stage);
    if (stage == stages.end()) continue;
    const double halves = times.input_gradient_seconds + times.weight_gradient_seconds;
    const double backward = times.backward_seconds > 0 ? times.backward_seconds : halves;
    stage->second.seconds = std::max(stage->second.seconds, times.forward_seconds + backward);
  }
}

}  // namespace

double busiest_to_mean(const std::vector<int64_t>& rows) {
  const auto sum = static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  if (sum == 0) return 0;
  return static_cast<double>(*std::max_element(rows.begin(), rows.end())) * static_cast<double>(rows.size()) /
         sum;
}

StepRows rows_by_layer(const std::vector<StepReport>& reports) {
  StepRows step;
  for (const StepReport& report : reports) {
    for (const ExpertRows& experts : report.expert_rows) {
      LayerRows& layer = step[experts.layer];
      layer.stage = experts.stage;
      add_to(layer.rows, experts.rows, static_cast<size_t>(experts.first_expert));
    }
  }
  return step;
}

void ExpertLoadRecorder::add(const std::vector<StepReport>& reports, std::vector<LayerLoad>& layers,
                             LoadHistory& history) {
  const StepRows step = rows_by_layer(reports);
  if (step.empty()) return;
  add_rows(step, layers);
  if (seen_++ % stride_ == 0) add_to_history(reports, step, layers, history);
}

// The window before and the one that fills up: what is told spans both.
void ExpertLoadRecorder::add_rows(const StepRows& step, std::vector<LayerLoad>& layers) {
  ++newest_steps_;
  for (const auto& [index, of_layer] : step) {
    LayerLoad& layer = layer_in(layers, index, of_layer.stage);
    ++layer.steps;
    add_to(layer.rows, of_layer.rows);
    add_to(newest_[index], of_layer.rows);
    if (newest_steps_ < kLoadWindow) continue;
    layer.rows = newest_[index];
    layer.steps = std::min(layer.steps, kLoadWindow);
  }
  if (newest_steps_ < kLoadWindow) return;
  newest_.clear();
  newest_steps_ = 0;
}

void ExpertLoadRecorder::add_to_history(const std::vector<StepReport>& reports, const StepRows& step,
                                        std::vector<LayerLoad>& layers, LoadHistory& history) {
  const size_t place = history.steps.size();
  history.steps.push_back(reports.front().step);
  std::map<StageIndex, StageOfStep> stages;
  for (const auto& [index, of_layer] : step) {
    const double ratio = busiest_to_mean(of_layer.rows);
    add_point(layer_in(layers, index, of_layer.stage).ratio, place, ratio);
    stages[of_layer.stage].ratios += ratio;
    ++stages[of_layer.stage].layers;
  }
  for (const StepReport& report : reports) add_rank(report, step, stages);
  for (const auto& [index, of_stage] : stages) {
    StageHistory& stage = stage_in(history.stages, index);
    add_point(stage.seconds, place, of_stage.seconds);
    add_point(stage.load, place, of_stage.load());
  }
  if (history.steps.size() >= kLoadHistory) thin_out(layers, history);
}

void ExpertLoadRecorder::thin_out(std::vector<LayerLoad>& layers, LoadHistory& history) {
  drop_every_other(history.steps);
  for (LayerLoad& layer : layers) drop_every_other(layer.ratio);
  for (StageHistory& stage : history.stages) {
    drop_every_other(stage.seconds);
    drop_every_other(stage.load);
  }
  stride_ *= 2;
}

}  // namespace penstock::coordinator
