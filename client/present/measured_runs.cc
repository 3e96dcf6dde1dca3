#include "client/present/measured_runs.h"

#include <optional>
#include <utility>

#include "plan/rebalancing/sampled_attempt.h"

namespace penstock::client {
namespace {

// Nothing: a kind that no split is found by.
std::optional<plan::SampledWork> work_of(v1::MeasuredKind kind) {
  switch (kind) {
    case v1::MEASURED_KIND_FORWARD:
      return plan::SampledWork::Forward;
    case v1::MEASURED_KIND_BACKWARD:
      return plan::SampledWork::Backward;
    case v1::MEASURED_KIND_INPUT_GRADIENT:
      return plan::SampledWork::InputGradient;
    case v1::MEASURED_KIND_WEIGHT_GRADIENT:
      return plan::SampledWork::WeightGradient;
    case v1::MEASURED_KIND_STEP:
      return plan::SampledWork::Step;
    case v1::MEASURED_KIND_OPTIMIZER:
      return plan::SampledWork::Optimizer;
    case v1::MEASURED_KIND_LAYER_FORWARD:
      return plan::SampledWork::LayerForward;
    case v1::MEASURED_KIND_LAYER_BACKWARD:
      return plan::SampledWork::LayerBackward;
    default:
      return std::nullopt;
  }
}

std::optional<plan::LayerType> layer_of(v1::LayerType type) {
  if (type < v1::LAYER_TYPE_EMBEDDING || type > v1::LAYER_TYPE_HEAD) return std::nullopt;
  return static_cast<plan::LayerType>(type - v1::LAYER_TYPE_EMBEDDING);
}

StatusOr<plan::MeasuredRun> measured_run(const v1::AttemptMeasurements& message) {
  plan::SampledAttempt attempt;
  attempt.schedule = message.schedule();
  for (const v1::StageItems& stage : message.stages()) {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<plan::Item> items,
                              plan::parse_items({stage.items().begin(), stage.items().end()}));
    attempt.split.push_back(std::move(items));
  }
  for (const v1::MeasuredSeries& series : message.series()) {
    const std::optional<plan::SampledWork> work = work_of(series.kind());
    if (!work) continue;
    attempt.series.push_back({series.rank(),
                              series.stage(),
                              *work,
                              {series.samples().begin(), series.samples().end()},
                              layer_of(series.layer())});
  }
  return plan::run_of(attempt);
}

}  // namespace

StatusOr<std::vector<plan::MeasuredRun>> measured_runs(const v1::MeasurementsResponse& response) {
  std::vector<plan::MeasuredRun> runs;
  for (const v1::AttemptMeasurements& attempt : response.attempts()) {
    StatusOr<plan::MeasuredRun> run = measured_run(attempt);
    if (!run.ok()) return with_context(run.status(), fmt::format("attempt {}", attempt.attempt()));
    runs.push_back(*std::move(run));
  }
  if (runs.empty()) return invalid_argument("no attempt is measured");
  return runs;
}

}  // namespace penstock::client
