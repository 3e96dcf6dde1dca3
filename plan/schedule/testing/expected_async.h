// What published recurrences of pipedream and pipedream-2bw end with, on a chain of scalar stages with plain SGD: for
// whoever plays their programs.
#pragma once

#include <vector>

namespace penstock::plan::testing {

struct Trained {
  const char* schedule;
  int ranks;
  int microbatches;
  int updates;
  std::vector<double> weights;
};

inline const Trained kTrained[] = {
#include "plan/schedule/expected_async_weights.inc"
};

struct Sample {
  double input;
  double target;
};

inline constexpr Sample kSamples[] = {
#include "plan/schedule/expected_async_inputs.inc"
};

inline constexpr double kLearningRate = 0.05;

}  // namespace penstock::plan::testing
