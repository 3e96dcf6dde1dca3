#include "worker/optimizer/learning_rate.h"

#include <algorithm>
#include <numbers>

#include "base/check.h"
#include "base/ieee_math.h"

namespace penstock::worker {

double learning_rate(StepIndex step, const plan::TrainSpec& train) {
  const plan::LearningRateSchedule& schedule = train.lr_schedule;
  const double peak = train.optimizer.lr;
  const int64_t updates = step.value + 1;  // counted from 1, so that the first step already moves
  if (updates <= schedule.warmup_steps) {
    return peak * static_cast<double>(updates) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.name == "constant") return peak;
  PENSTOCK_CHECK(schedule.name == "cosine", "{}", schedule.name);
  const auto decaying = static_cast<double>(train.steps - schedule.warmup_steps);
  const double progress = std::min(1.0, static_cast<double>(updates - schedule.warmup_steps) / decaying);
  const double lowest = peak * schedule.min_ratio;
  return lowest + (peak - lowest) * 0.5 * (1 + cosine(std::numbers::pi * progress));
}

}  // namespace penstock::worker
