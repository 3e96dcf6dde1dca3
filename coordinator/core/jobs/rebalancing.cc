#include "coordinator/core/jobs/rebalancing.h"

namespace penstock::coordinator {

bool question_is_due(const plan::JobSpec& spec, const Measurements& measurements, const SplitWatch& watch,
                     const QuestionLimits& limits) {
  if (spec.rebalance == plan::Rebalance::Off || watch.asked || watch.is_fixed || !measurements.has_steps())
    return false;
  const int64_t fresh = measurements.attempts().back().steps - watch.measured_steps;
  return fresh >= limits.steps && fresh * spec.microbatches() >= limits.samples;
}

bool moves_at_once(double gain, int64_t steps_since, int64_t checkpoint_every) {
  return static_cast<double>(steps_since) <= gain * static_cast<double>(checkpoint_every - steps_since);
}

}  // namespace penstock::coordinator
