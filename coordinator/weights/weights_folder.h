// The folder of a job's final weights: <state>/jobs/NAME/weights. Ranks write their files into it; it becomes a
// Hugging Face folder (config.json, rank-*.safetensors, model.safetensors.index.json) when the job has succeeded, all
// at once, by its index, which comes last.
//
// Slow (disks): call it away from the core's thread. Errors begin with the path.
#pragma once

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

// Makes the folder and the marker by which the ranks know it. Weights of an earlier job of that name, which has been
// retired, are moved beside it (weights-1, ...), never overwritten; what an attempt that failed has left is removed.
Status prepare_weights_folder(const WeightsPlace& place);

// Holds what the ranks wrote against the model (every tensor once, names and shapes) and makes the folder whole.
// InvalidArgument or NotFound names file and tensor.
Status commit_weights_folder(const WeightsPlace& place, const plan::ModelSpec& model, int ranks);

// Takes a commit back: the job did not succeed after all.
Status discard_weights_folder(const WeightsPlace& place);

}  // namespace penstock::coordinator
