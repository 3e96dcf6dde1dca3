// What the layers of a job cost, from a file: either costs of layers (layer_costs.h), one for each item of the model in
// order (embedding, blocks, head), or what `penstock fit -o json` prints, which has costs by type (embedding, block, head).
//
// Bytes that the file does not say (where all of them are 0) are predicted from the job: plan/cost. Blocks may then
// recompute: they keep their input, and their backward runs the forward once more.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/interop/layer_costs.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// InvalidArgument: "PATH: layers: expected 10, embedding, blocks and head, found 8".
StatusOr<LayerCosts> job_profile_from_json(const std::string& text, const std::string& path,
                                           const JobSpec& job);

// Bytes of the job's items, predicted; costs.layers are one an item.
Status predict_bytes(const JobSpec& job, LayerCosts& costs);

}  // namespace penstock::plan
