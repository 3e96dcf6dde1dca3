// Costs by stage from a file, as `penstock schedule --stage-costs FILE` takes them:
//
//   {"stages": [{"forward": 3, "input_gradient": 2.5, "weight_gradient": 1}, ...]}, or the list alone.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/simulation/costs.h"

namespace penstock::plan {

// One entry a stage, in stage order, decimals as TickScale takes them; what else an entry holds is ignored.
// `latency` is added to every transfer. InvalidArgument names the path and the place:
// "x.json: stages[3].forward: ...".
StatusOr<ScaledCosts> stage_costs_from_json(const std::string& text, const std::string& path, int stages,
                                            std::string_view latency = "0");

}  // namespace penstock::plan
