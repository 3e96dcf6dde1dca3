#include "worker/checkpoint/training_state.h"

#include <algorithm>
#include <iterator>
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
    state.weights.push_back({spec.stored_name, spec.shape, values_of(parameter.weight)});
    if (moments[i].first.empty()) continue;
    state.moments.push_back({first_moment_name(spec.stored_name), spec.shape, values_of(moments[i].first)});
    state.moments.push_back({second_moment_name(spec.stored_name), spec.shape, values_of(moments[i].second)});
  }
  return state;
}

TrainingState part_of(const TrainingState& state, std::span<const Parameter> with_weight,
                      std::span<const Parameter> with_moments) {
  std::set<std::string> names;  // of tensors
  for (const Parameter& parameter : with_weight) names.insert(parameter.spec.stored_name);
  for (const Parameter& parameter : with_moments)
    names.insert(
        {first_moment_name(parameter.spec.stored_name), second_moment_name(parameter.spec.stored_name)});
  const auto is_named = [&](const StateTensor& tensor) { return names.contains(tensor.name); };
  TrainingState part;
  std::copy_if(state.weights.begin(), state.weights.end(), std::back_inserter(part.weights), is_named);
  std::copy_if(state.moments.begin(), state.moments.end(), std::back_inserter(part.moments), is_named);
  return part;
}

Status load_checkpoint(const std::string& path, int64_t step, const plan::ModelSpec& model,
                       const TrainingState& state, const ParameterStore& parameters) {
  PENSTOCK_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path));
  if (checkpoint.manifest().step != step)
    return invalid_argument("{}: step: expected {}, found {}", path, step, checkpoint.manifest().step);
  std::vector<ExpectedTensor> weights;
  for (const plan::ParameterSpec& spec : plan::model_parameters(model))
    weights.push_back({spec.stored_name, spec.shape});
  PENSTOCK_RETURN_IF_ERROR(checkpoint.check(checkpoint_tensors(weights)));
  for (const StateTensor& tensor : state.weights)
    PENSTOCK_RETURN_IF_ERROR(checkpoint.read(tensor.name, tensor.values));
  for (const StateTensor& tensor : state.moments)
    PENSTOCK_RETURN_IF_ERROR(checkpoint.read(tensor.name, tensor.values));
  const Parameter* head = parameters.tied_head();
  return head == nullptr ? ok_status() : checkpoint.read(head->spec.stored_name, values_of(head->weight));
}

}  // namespace penstock::worker
