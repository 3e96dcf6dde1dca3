#include "worker/optimizer/learning_rate.h"

#include <algorithm>
#include <numbers>
#include <string>

#include "base/check.h"
#include "base/ieee_math.h"

namespace penstock::worker {

namespace {

// Share of the decay that is over after `updates`, when its last `length` updates of the run decay.
double decayed_share(int64_t updates, int64_t steps, int64_t length) {
  const int64_t done = updates - (steps - length);
  if (done <= 0) return 0;
  return std::min(1.0, static_cast<double>(done) / static_cast<double>(length));
}

// From 1 at the decay's beginning to 0 at its end.
double shape_of_decay(const std::string& schedule, double share) {
  if (schedule == "cosine") return 0.5 * (1 + cosine(std::numbers::pi * share));
  PENSTOCK_CHECK(schedule == "linear" || schedule == "wsd", "{}", schedule);
  return 1 - share;
}

}  // namespace

double learning_rate(StepIndex step, const plan::TrainSpec& train) {
  const plan::LearningRateSchedule& schedule = train.lr_schedule;
  const double peak = train.optimizer.lr;
  const int64_t updates = step.value + 1;  // counted from 1, so that the first step already moves
  if (updates <= schedule.warmup_steps) {
    return peak * static_cast<double>(updates) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.name == "constant") return peak;
  const int64_t decaying =
      schedule.name == "wsd" ? schedule.decay_steps : train.steps - schedule.warmup_steps;
  const double share = decayed_share(updates, train.steps, decaying);
  if (share == 0) return peak;
  const double lowest = peak * schedule.min_ratio;
  return lowest + (peak - lowest) * shape_of_decay(schedule.name, share);
}

}  // namespace penstock::worker
