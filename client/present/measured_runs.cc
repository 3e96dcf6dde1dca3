#include "client/present/measured_runs.h"

#include <optional>
#include <utility>

#include "plan/rebalancing/sampled_attempt.h"
#include "proto/codec/wire.h"

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

plan::SampledAttempt sampled(const v1::AttemptMeasurements& message) {
  plan::SampledAttempt attempt{.number = message.attempt(), .schedule = message.schedule()};
  for (const v1::StageItems& stage : message.stages())
    attempt.stages.emplace_back(stage.items().begin(), stage.items().end());
  for (const v1::MeasuredSeries& series : message.series()) {
    const std::optional<plan::SampledWork> work = work_of(series.kind());
    if (!work) continue;
    attempt.series.push_back({series.rank(),
                              series.stage(),
                              *work,
                              {series.samples().begin(), series.samples().end()},
                              codec::from_proto(series.layer())});
  }
  return attempt;
}

}  // namespace

StatusOr<MeasuredRuns> measured_runs(v1::MeasurementsResponse response) {
  std::vector<plan::SampledAttempt> attempts;
  for (const v1::AttemptMeasurements& attempt : response.attempts()) attempts.push_back(sampled(attempt));
  plan::SampledRuns sampled = plan::runs_of(attempts);
  MeasuredRuns measured;
  measured.left_out = plan::to_text(sampled.left_out);
  if (sampled.runs.empty()) {
    return failed_precondition("nothing of it is measured as planning needs it{}{}",
                               measured.left_out.empty() ? "" : ": ", measured.left_out);
  }
  for (auto each = sampled.left_out.rbegin(); each != sampled.left_out.rend(); ++each)
    response.mutable_attempts()->DeleteSubrange(static_cast<int>(each->index), 1);
  measured.runs = std::move(sampled.runs);
  measured.response = std::move(response);
  return measured;
}

}  // namespace penstock::client
