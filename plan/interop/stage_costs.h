// Costs by stage from a file, as `penstock schedule --stage-costs FILE` takes them:
//
//   {"stages": [{"forward": 3, "input_gradient": 2.5, "weight_gradient": 1}, ...]}, or the list alone.
//
// An emulated device reads the same file as milliseconds, and of the object also what the command has options for:
//   {"latency": 0.02, "bytes_per_second": 25e9, "overlapped_pair": 7, "stages": [{..., "backward": 3.2}]}
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/simulation/costs.h"
#include "plan/spec/cost_source.h"

namespace penstock::plan {

// One entry a stage, in stage order, decimals as TickScale takes them; what else an entry holds is ignored.
// `latency` is added to every transfer. InvalidArgument names the path and the place:
// "x.json: stages[3].forward: ...".
StatusOr<ScaledCosts> stage_costs_from_json(const std::string& text, const std::string& path, int stages,
                                            std::string_view latency = "0");

// The numbers of such a file, for a job file that carries them on: of any count of stages, each with its forward, and
// whatever else is there. InvalidArgument as above.
StatusOr<CostNumbers> cost_numbers_from_json(const std::string& text, const std::string& path);

}  // namespace penstock::plan
