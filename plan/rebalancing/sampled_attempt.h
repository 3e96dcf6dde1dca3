// What the ranks of an attempt told, series by series, put together as a run. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/spec/layer_type.h"

namespace penstock::plan {

enum class SampledWork : uint8_t {
  Forward,   // of a stage, as the three below
  Backward,  // fused
  InputGradient,
  WeightGradient,
  LayerForward,  // of a stage and a type of layer
  LayerBackward,
  Step,  // of a rank
  Optimizer,
};

// The newest samples of one rank, one a step, oldest first.
struct SampledSeries {
  int rank = 0;    // in the job
  int stage = -1;  // below 0: of the rank
  SampledWork work = SampledWork::Forward;
  std::vector<double> seconds;
  std::optional<LayerType> layer{};
};

struct SampledAttempt {
  std::string schedule;
  Split split{};
  std::vector<SampledSeries> series{};
};

// Both halves of a split backward are added, sample by sample; where one series is longer than another its newest samples
// count. Steps are those of the slowest rank. InvalidArgument: samples of a stage that the split has not, and what check_run()
// refuses.
StatusOr<MeasuredRun> run_of(const SampledAttempt& attempt);

// "embedding", "0", "head". InvalidArgument: other items.
StatusOr<std::vector<Item>> parse_items(const std::vector<std::string>& items);

}  // namespace penstock::plan
