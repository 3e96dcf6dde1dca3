// Stages that were measured, as a file says them, and what was learned from them as JSON.
//
//   {"stages": [{"layers": {"embedding": 1, "block": 4}, "forward_ms": 10.8, "backward_ms": 22.0,
//                "tokens": 2048, "worker": "gpu-3"}, ...],
//    "predict": [{"layers": {"block": 5}, "tokens": 4096}, ...]}
// tokens and worker may be missing; layer_times.h says what they are for.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/calibration/layer_times.h"

namespace penstock::plan {

struct StageToPredict {
  LayerCounts layers;
  std::optional<double> tokens;
};

struct MeasuredStages {
  std::vector<StageMeasurement> stages;
  std::vector<StageToPredict> predict;
};

// InvalidArgument: "PATH: stages[3].forward_ms: ...".
StatusOr<MeasuredStages> measured_stages_from_json(const std::string& text, const std::string& path);

// {"types": {"block": {"forward_ms", "backward_ms"}}, "predicted": [{"forward_ms", "backward_ms", "time_ms"}],
//  "residual": {"mean_percent", "max_percent", "percent": [...], "degrees_of_freedom"}, "worker_factor": {...}}. A fit by
// tokens has {"fixed_ms", "per_token_ms"} in place of each number of a type. `predicted`: of file.predict, in order.
std::string fitted_to_json(const FittedTimes& fitted, const std::vector<StageTime>& predicted);

}  // namespace penstock::plan
