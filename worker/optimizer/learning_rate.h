// The learning rate of a step: warm-up, then constant, linear, cosine or wsd. Pure.
#pragma once

#include "base/ids.h"
#include "plan/spec/job_spec.h"

namespace penstock::worker {

// Linear from lr / warmup_steps at step 0 to lr at the last warm-up step. Then
//   constant  lr to the end
//   linear    a straight line that reaches lr x min_ratio at the last step of the run
//   cosine    half a cosine that ends there too
//   wsd       lr (the stable part), then over the last decay_steps the straight line ("MiniCPM: Unveiling the
//             Potential of Small Language Models with Scalable Training Strategies", 2024, section 4)
double learning_rate(StepIndex step, const plan::TrainSpec& train);

}  // namespace penstock::worker
