// The learning rate of a step: warm-up, then constant or cosine. Pure.
#pragma once

#include "base/ids.h"
#include "plan/spec/job_spec.h"

namespace penstock::worker {

// Linear from lr / warmup_steps at step 0 to lr at the last warm-up step; then constant, or a half cosine
// that reaches lr x min_ratio at the last step of the run.
double learning_rate(StepIndex step, const plan::TrainSpec& train);

}  // namespace penstock::worker
