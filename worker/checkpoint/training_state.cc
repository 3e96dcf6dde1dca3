#include "worker/checkpoint/training_state.h"

#include <set>

#include "base/check.h"
#include "base/checkpoint/checkpoint.h"
#include "plan/spec/parameters.h"

namespace penstock::worker {
namespace {

std::span<float> values_of(const kernels::TensorView& tensor) {
  return {tensor.f32(), static_cast<size_t>(tensor.elements())};
}

}  // namespace

TrainingState training_state_of(const ParameterStore& parameters,
                                std::span<const MomentsOfParameter> moments) {
  PENSTOCK_CHECK_EQ(parameters.parameters().size(), moments.size());
  TrainingState state;
  for (size_t i = 0; i < moments.size(); ++i) {
    const Parameter& parameter = parameters.parameters()[i];
    const plan::ParameterSpec& spec = parameter.spec;
    state.weights.push_back({spec.name, spec.shape, values_of(parameter.weight)});
    state.moments.push_back({first_moment_name(spec.name), spec.shape, values_of(moments[i].first)});
    state.moments.push_back({second_moment_name(spec.name), spec.shape, values_of(moments[i].second)});
  }
  return state;
}

TrainingState part_of(const TrainingState& state, std::span<const Parameter> parameters) {
  std::set<std::string> names;
  for (const Parameter& parameter : parameters) names.insert(parameter.spec.name);
  TrainingState part;
  for (size_t i = 0; i < state.weights.size(); ++i) {
    if (!names.contains(state.weights[i].name)) continue;
    part.weights.push_back(state.weights[i]);
    part.moments.insert(part.moments.end(), {state.moments[2 * i], state.moments[2 * i + 1]});
  }
  return part;
}

Status load_checkpoint(const std::string& path, int64_t step, const plan::ModelSpec& model,
                       const TrainingState& state, const ParameterStore& parameters) {
  PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path));
  if (checkpoint.manifest().step != step)
    return invalid_argument("{}: step: expected {}, found {}", path, step, checkpoint.manifest().step);
  std::vector<ExpectedTensor> weights;
  for (const plan::ParameterSpec& spec : plan::model_parameters(model))
    weights.push_back({spec.name, spec.shape});
  PENSTOCK_RETURN_IF_ERROR(checkpoint.check(checkpoint_tensors(weights)));
  for (const StateTensor& tensor : state.weights)
    PENSTOCK_RETURN_IF_ERROR(checkpoint.read(tensor.name, tensor.values));
  for (const StateTensor& tensor : state.moments)
    PENSTOCK_RETURN_IF_ERROR(checkpoint.read(tensor.name, tensor.values));
  const Parameter* head = parameters.tied_head();
  return head == nullptr ? ok_status() : checkpoint.read(head->spec.name, values_of(head->weight));
}

}  // namespace penstock::worker
