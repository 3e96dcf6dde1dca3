#include "worker/executor/replica_sums.h"

#include "plan/spec/parameters.h"

namespace penstock::worker {
namespace {

// A tied head adds to an accumulator of its own, though its matrix is the embedding's.
std::vector<kernels::TensorView> gradients_of(const plan::ModelSpec& model,
                                              const std::vector<plan::Item>& items,
                                              const ParameterStore& parameters) {
  std::vector<kernels::TensorView> gradients;
  for (const plan::ParameterSpec& spec : plan::parameters_of(model, items)) {
    gradients.push_back(parameters.at(spec.name).gradient);
  }
  if (plan::holds_tied_head(model, items)) gradients.push_back(parameters.tied_head()->gradient);
  return gradients;
}

}  // namespace

ReplicaSums::ReplicaSums(const plan::JobSpec& job, const plan::RankProgram& program,
                         const ParameterStore& parameters, kernels::Operators& operators, Endpoint& endpoint)
    : exchange_(endpoint, operators) {
  for (const plan::StageBuffers& buffers : program.buffers) {
    if (!buffers.twin.is_set()) continue;
    const std::vector<plan::Item>& items = job.parallel.split[static_cast<size_t>(buffers.stage.value)];
    stages_[buffers.stage] = {buffers.twin, gradients_of(job.model, items, parameters)};
  }
}

Status ReplicaSums::sum_gradients(StageIndex stage) {
  const auto found = stages_.find(stage);
  if (found == stages_.end()) return ok_status();
  for (const kernels::TensorView& gradient : found->second.gradients) {
    PENSTOCK_RETURN_IF_ERROR(exchange_.add_each_other(found->second.twin, gradient));
  }
  return ok_status();
}

}  // namespace penstock::worker
