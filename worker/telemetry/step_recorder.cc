#include "worker/telemetry/step_recorder.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::worker {

double median(std::span<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

StepRecorder::StepRecorder(std::span<const StageIndex> stages, int actions_per_kind)
    : actions_per_kind_(static_cast<size_t>(actions_per_kind)) {
  stages_.resize(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    stages_[i].stage = stages[i];
    for (auto& samples : stages_[i].seconds) samples.reserve(actions_per_kind_);
  }
}

void StepRecorder::begin(TimePoint now, Duration cpu) {
  began_ = now;
  cpu_at_begin_ = cpu;
  waited_ = Duration::zero();
  optimizer_ = Duration::zero();
  forget_actions();
}

void StepRecorder::forget_actions() {
  for (StageSamples& stage : stages_) {
    for (auto& samples : stage.seconds) samples.clear();
  }
}

void StepRecorder::add_action(StageIndex stage, plan::ActionKind kind, Duration took) {
  std::vector<double>& samples = samples_of(stage).seconds[static_cast<size_t>(kind)];
  PENSTOCK_CHECK_LT(samples.size(), actions_per_kind_);
  samples.push_back(to_seconds(took));
}

void StepRecorder::end(TimePoint now, Duration cpu, StepReport& report) {
  report.wall_seconds = to_seconds(now - began_);
  report.cpu_seconds = to_seconds(cpu - cpu_at_begin_);
  report.wait_seconds = to_seconds(waited_);
  report.optimizer_seconds = to_seconds(optimizer_);
  report.stages.resize(stages_.size());
  for (size_t i = 0; i < stages_.size(); ++i) {
    auto& seconds = stages_[i].seconds;
    StageTimes& times = report.stages[i];
    times.stage = stages_[i].stage;
    times.forward_seconds = median(seconds[static_cast<size_t>(plan::ActionKind::Forward)]);
    times.backward_seconds = median(seconds[static_cast<size_t>(plan::ActionKind::Backward)]);
    times.input_gradient_seconds = median(seconds[static_cast<size_t>(plan::ActionKind::InputGradient)]);
    times.weight_gradient_seconds = median(seconds[static_cast<size_t>(plan::ActionKind::WeightGradient)]);
  }
  begin(now, cpu);
}

StepRecorder::StageSamples& StepRecorder::samples_of(StageIndex stage) {
  const auto found =
      std::find_if(stages_.begin(), stages_.end(), [&](const StageSamples& s) { return s.stage == stage; });
  PENSTOCK_CHECK(found != stages_.end(), "stage {} is not of this rank", stage.value);
  return *found;
}

}  // namespace penstock::worker
