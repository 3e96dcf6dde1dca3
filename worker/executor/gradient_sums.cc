#include "worker/executor/gradient_sums.h"

#include <algorithm>
#include <initializer_list>

#include "worker/model/layout.h"

namespace penstock::worker {
namespace {

using kernels::TensorView;

// Neighbours in memory as one tensor: a stage's gradients then travel in messages as large as they may be. The bytes
// between two of them are zeros on all ranks.
std::vector<TensorView> joined(const std::vector<TensorView>& gradients) {
  constexpr int64_t kStep = Layout::kAlignmentBytes / static_cast<int64_t>(sizeof(float));
  std::vector<TensorView> runs;
  for (const TensorView& gradient : gradients) {
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

Status sum_each(std::optional<OrderedSum>& sum, const std::vector<TensorView>& gradients) {
  if (!sum) return ok_status();
  for (const TensorView& gradient : gradients) PENSTOCK_RETURN_IF_ERROR(sum->sum(gradient));
  return ok_status();
}

}  // namespace

GradientSums::GradientSums(const plan::JobSpec& job, const plan::RankProgram& program,
                           const ParameterStore& parameters, kernels::Operators& operators,
                           const GroupEndpoints& groups) {
  const bool experts_apart = &groups.expert_data() != &groups.data();
  bool replicated = false;
  for (const plan::StageBuffers& buffers : program.buffers) {
    const std::vector<plan::Item>& items = job.parallel.split[static_cast<size_t>(buffers.stage.value)];
    Tensors dense, experts, all;
    for (const Parameter* parameter : parameters.of_items(items)) {
      (experts_apart && !parameter->spec.is_dense() ? experts : dense).push_back(parameter->gradient);
      all.push_back(parameter->gradient);
    }
    // Of an accumulator of its own, though the matrix is the embedding's.
    if (plan::holds_tied_head(job.model, items)) {
      dense.push_back(parameters.tied_head()->gradient);
      all.push_back(parameters.tied_head()->gradient);
    }
    OfStage& stage = stages_[buffers.stage];
    stage = {.dense = joined(dense), .experts = joined(experts), .all = {}, .replicas = {}};
    if (!buffers.twin.is_set()) continue;
    replicated = true;
    stage.all = joined(all);
    stage.replicas = {program.rank, buffers.twin};
    if (buffers.replica != 0) std::swap(stage.replicas.front(), stage.replicas.back());
  }
  if (groups.data().member.ranks > 1) over_data_.emplace(groups.data().member, operators);
  if (experts_apart && groups.expert_data().member.ranks > 1)
    over_expert_data_.emplace(groups.expert_data().member, operators);
  if (replicated) over_pipeline_.emplace(groups.pipeline().member, operators);
}

int64_t GradientSums::bytes() const {
  int64_t bytes = 0;
  for (const std::optional<OrderedSum>* sum : {&over_data_, &over_expert_data_, &over_pipeline_}) {
    if (*sum) bytes += (*sum)->bytes();
  }
  return bytes;
}

Status GradientSums::sum(StageIndex stage) {
  const auto found = stages_.find(stage);
  if (found == stages_.end()) return internal_error("the gradients of stage {} are not here", stage.value);
  const OfStage& of = found->second;
  PENSTOCK_RETURN_IF_ERROR(sum_each(over_data_, of.dense));
  PENSTOCK_RETURN_IF_ERROR(sum_each(over_expert_data_, of.experts));
  for (const TensorView& gradient : of.all)
    PENSTOCK_RETURN_IF_ERROR(over_pipeline_->sum(gradient, of.replicas));
  return ok_status();
}

}  // namespace penstock::worker
