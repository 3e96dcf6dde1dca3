#include "worker/executor/replica_sums.h"

#include <initializer_list>

#include "plan/spec/parameters.h"
#include "worker/model/layout.h"

namespace penstock::worker {
namespace {

// A tied head adds to an accumulator of its own, though its matrix is the embedding's.
std::vector<kernels::TensorView> gradients_of(const plan::ModelSpec& model,
                                              const std::vector<plan::Item>& items,
                                              const ParameterStore& parameters) {
  std::vector<kernels::TensorView> gradients;
  for (const Parameter* parameter : parameters.of_items(items)) gradients.push_back(parameter->gradient);
  if (plan::holds_tied_head(model, items)) gradients.push_back(parameters.tied_head()->gradient);
  return gradients;
}

// Neighbours in memory as one tensor: a stage's gradients then travel in messages as large as they may be. The bytes
// between two of them are zeros on both ranks.
std::vector<kernels::TensorView> joined(const std::vector<kernels::TensorView>& gradients) {
  constexpr int64_t kStep = Layout::kAlignmentBytes / static_cast<int64_t>(sizeof(float));
  std::vector<kernels::TensorView> runs;
  for (const kernels::TensorView& gradient : gradients) {
    float* const begin = runs.empty() ? nullptr : runs.back().f32();
    const int64_t length = runs.empty() ? 0 : (runs.back().elements() + kStep - 1) / kStep * kStep;
    if (runs.empty() || gradient.f32() != begin + length) {
      runs.emplace_back(gradient.f32(), kernels::DataType::Float32,
                        std::initializer_list<int64_t>{gradient.elements()});
    } else {
      runs.back() = {begin, kernels::DataType::Float32, {length + gradient.elements()}};
    }
  }
  return runs;
}

}  // namespace

ReplicaSums::ReplicaSums(const plan::JobSpec& job, const plan::RankProgram& program,
                         const ParameterStore& parameters, kernels::Operators& operators, Endpoint& endpoint)
    : exchange_(endpoint, operators) {
  for (const plan::StageBuffers& buffers : program.buffers) {
    if (!buffers.twin.is_set()) continue;
    const std::vector<plan::Item>& items = job.parallel.split[static_cast<size_t>(buffers.stage.value)];
    stages_[buffers.stage] = {buffers.twin, joined(gradients_of(job.model, items, parameters))};
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
