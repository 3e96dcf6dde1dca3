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
  int64_t number = 0;  // of the job's attempts
  std::string schedule{};
  std::vector<std::vector<std::string>> stages{};  // items of each: "embedding", "0", "head"
  std::vector<SampledSeries> series{};
};

// Both halves of a split backward are added, sample by sample; where one series is longer than another its newest samples
// count. Steps are those of the slowest rank. InvalidArgument: samples of a stage that the split has not, and what check_run()
// refuses, as of an attempt that ended before all its stages were measured.
StatusOr<MeasuredRun> run_of(const SampledAttempt& attempt);

struct LeftOutAttempt {
  size_t index = 0;  // among those that were asked about
  std::string why;   // "attempt 2: stage 1 on rank 1: expected ..."
};

struct SampledRuns {
  std::vector<MeasuredRun> runs;  // in the order of their attempts
  std::vector<LeftOutAttempt> left_out;
};

// One attempt that says nothing does not take the word from the others.
SampledRuns runs_of(const std::vector<SampledAttempt>& attempts);

// All of them; "" of none.
std::string to_text(const std::vector<LeftOutAttempt>& left_out);

}  // namespace penstock::plan
