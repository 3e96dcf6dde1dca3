// A rank's own parameters, from a Hugging Face folder and into a file of one.
//
// Every rank holds the headers of the whole folder against the whole model: so every tensor of it is used exactly
// once over the job, though a rank reads only its own bytes. Names are those of the model, never of a stage. Errors
// name file and tensor. Thread: the interpreter's.
#pragma once

#include <span>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

// Fills the weights, a tied head's copy with them, as float32. Errors of TensorFolder.
Status load_weights(const std::string& folder, const plan::ModelSpec& model,
                    const ParameterStore& parameters);

// Before the first step: is the place the coordinator's folder, seen from here, and can a file be made in it?
// FailedPrecondition otherwise. `what` goes there: "the final weights".
Status check_weights_place(const WeightsPlace& place, RankIndex rank, const std::string& what);

// Writes rank-RRRRR-of-PPPPP.safetensors, float32: whole, or not at all. Errors of AtomicFile.
Status write_weights(const WeightsPlace& place, RankIndex rank, int ranks,
                     std::span<const Parameter> parameters);

}  // namespace penstock::worker
