// What a layer of each type costs, from what whole stages took: time = sum over the stage's layers of (a + b x tokens),
// where a and b belong to the layer's type (embedding, block, head, ...) and tokens to the microbatch.
//
// Stage totals cannot tell one block from another, but they tell types apart: least squares of the relative errors, so
// that a short stage counts as much as a long one, with no negative cost. Without two sizes of microbatch a and b cannot
// be told apart, and a stands for both.
//
// Worker speeds: where stages of the same layers ran on several workers, a worker's factor is the median of how much
// longer it took than the others for the same. A worker that shares no such stage with another has no factor: whether
// its stage is heavy or it is slow cannot be told.
//
// Times are doubles, in milliseconds. Pure; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace penstock::plan {

using LayerCounts = std::map<std::string, int>;  // type -> how many; none is 0

constexpr size_t kLayerTypesMax = 32;
constexpr size_t kMeasurementsMax = 65'536;

// Medians of one stage, after warm-up.
struct StageMeasurement {
  LayerCounts layers;
  double forward_ms = 0;
  double backward_ms = 0;
  std::optional<double> tokens;  // of a microbatch; of all measurements or of none
  std::string worker;            // "": not said
};

// Of one layer.
struct LayerTime {
  double fixed_ms = 0;      // a
  double per_token_ms = 0;  // b
  double at(double tokens) const { return fixed_ms + per_token_ms * tokens; }
};

struct LayerTimes {
  LayerTime forward;
  LayerTime backward;
};

struct StageTime {
  double forward_ms = 0;
  double backward_ms = 0;
  double total_ms() const { return forward_ms + backward_ms; }
};

struct FittedTimes {
  std::map<std::string, LayerTimes> types;
  bool by_tokens = false;  // two sizes of microbatch were measured
  std::map<std::string, double>
      worker_factors;  // how much longer a worker takes; only those that can be told

  std::vector<StageTime> fitted;      // of each measurement, in order
  std::vector<double> error_percent;  // of each: 100 x (fitted - measured) / measured, forward + backward
  double mean_error_percent = 0;      // of their absolute values
  double largest_error_percent = 0;
  int degrees_of_freedom = 0;  // measurements beyond what the types need; 0: the errors say nothing
};

// InvalidArgument names the entry or the type: nothing measured, times that are no numbers above 0, types that always
// stand together.
StatusOr<FittedTimes> fit_layer_times(const std::vector<StageMeasurement>& measurements);

// InvalidArgument without `tokens` where the fit is by tokens, and for a type that was not measured.
StatusOr<StageTime> predict_stage(const FittedTimes& times, const LayerCounts& layers,
                                  std::optional<double> tokens = std::nullopt);

}  // namespace penstock::plan
