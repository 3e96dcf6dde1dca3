#include "coordinator/core/jobs/rebalancing.h"

#include <algorithm>

namespace penstock::coordinator {

bool question_is_due(const plan::JobSpec& spec, const Measurements& measurements, const SplitWatch& watch,
                     const QuestionLimits& limits) {
  if (spec.rebalance == plan::Rebalance::Off || watch.asked || watch.is_fixed || !measurements.has_steps())
    return false;
  const int64_t fresh = measurements.attempts().back().steps - watch.measured_steps;
  return fresh >= limits.steps && fresh * spec.microbatches() >= limits.samples;
}

bool pays(const MoveWeights& weights, int64_t steps_again, int64_t steps_left) {
  const double brought = (weights.goes_back ? 1 : weights.gain) * static_cast<double>(steps_left);
  return steps_left > 0 && brought >= static_cast<double>(steps_again) + weights.move_steps;
}

MoveTime time_to_move(const MoveWeights& weights) {
  const int64_t until_next = std::max<int64_t>(0, weights.checkpoint_every - weights.steps_since);
  const double lost_by_waiting = weights.gain * static_cast<double>(until_next);
  if (static_cast<double>(weights.steps_since) <= lost_by_waiting &&
      pays(weights, weights.steps_since, weights.steps_left))
    return MoveTime::Now;
  return pays(weights, 0, weights.steps_left - until_next) ? MoveTime::AtCheckpoint : MoveTime::Never;
}

}  // namespace penstock::coordinator
