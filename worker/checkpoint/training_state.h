// What a rank must have to go on from a step: its parameters and its optimizer's moments, under the names that the model's
// weights have in a Hugging Face folder. The step, the place in the data and every random stream follow from the number of the step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

struct StateTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<float> values;  // where they live; read and written between steps only
};

struct TrainingState {
  std::vector<StateTensor> weights;  // in model order, as are the moments
  std::vector<StateTensor> moments;
};

// Empty tensors: another rank has them.
struct MomentsOfParameter {
  kernels::TensorView first;
  kernels::TensorView second;
};

// `moments`: beside parameters.parameters().
TrainingState training_state_of(const ParameterStore& parameters,
                                std::span<const MomentsOfParameter> moments);

// The weights of some parameters and the moments of some: where ranks hold the same, one of them writes it.
TrainingState part_of(const TrainingState& state, std::span<const Parameter> with_weight,
                      std::span<const Parameter> with_moments);

// Fills the state, and a tied head's copy, from a checkpoint of whatever split, schedule and number of ranks. It must
// hold exactly the tensors of the model, and have been made after `step` steps. Errors of Checkpoint.
Status load_checkpoint(const std::string& path, int64_t step, const plan::ModelSpec& model,
                       const TrainingState& state, const ParameterStore& parameters);

}  // namespace penstock::worker
