#include "worker/model/blocks/head.h"

#include <algorithm>

#include "worker/model/activation_type.h"

namespace penstock::worker {

using kernels::DataType;
using kernels::TensorView;

HeadItem::Saved::Saved(const plan::JobSpec& job, Layout& layout) {
  const int64_t tokens = job.tokens_per_microbatch();
  x = layout.place(activation_type(job), {tokens, job.model.hidden_size});
  inverse_rms = layout.place(DataType::Float32, {tokens});
  normed_gradient = layout.place(activation_type(job), {tokens, job.model.hidden_size});
}

HeadItem::HeadItem(const plan::JobSpec& job, const ParameterStore& parameters, TokenSource& source,
                   Layout& layout)
    : saved_(job, layout),
      norm_(parameters.at("model.norm.weight")),
      weight_(parameters.head_weight()),
      source_(&source),
      epsilon_(job.model.rms_norm_eps),
      loss_(job.microbatches()) {}

void HeadItem::begin_step() {
  loss_.clear();
  targets_ = 0;
}

Status HeadItem::forward(const ItemCall& call, TensorView) {
  PENSTOCK_RETURN_IF_ERROR(read_targets(call));
  const TensorView normed = call.workspace.normed;
  call.operators.rms_norm(saved_.x.in(call.slot), norm_.value, epsilon_, normed,
                          saved_.inverse_rms.in(call.slot));
  const double loss = loss_of(call, normed);
  return call.warm_up ? ok_status() : loss_.record(call.microbatch, loss);
}

double HeadItem::loss_of(const ItemCall& call, TensorView normed) const {
  const kernels::PackedWeight& weight = weight_.packed.weight;
  const TensorView targets = call.workspace.targets;
  if (call.evaluation) return call.operators.head_loss(normed, weight, targets);
  return call.operators.head_loss_and_gradients(normed, weight, targets, 1.0 / static_cast<double>(targets_),
                                                saved_.normed_gradient.in(call.slot), weight_.gradient);
}

Status HeadItem::read_targets(const ItemCall& call) {
  const TensorView targets = call.workspace.targets;
  const std::span<int32_t> tokens(targets.i32(), static_cast<size_t>(targets.elements()));
  if (call.warm_up) {
    targets_ = targets.elements();
    std::fill(tokens.begin(), tokens.end(), 0);
    return ok_status();
  }
  if (targets_ == 0) {
    PENSTOCK_ASSIGN_OR_RETURN(targets_, source_->target_count(call.step));
  }
  return source_->microbatch(call.step, call.microbatch_of_step, {}, tokens);
}

Status HeadItem::backward(const ItemCall& call, TensorView, TensorView input_gradient) {
  call.operators.rms_norm_backward(saved_.x.in(call.slot), norm_.value, saved_.inverse_rms.in(call.slot),
                                   saved_.normed_gradient.in(call.slot), input_gradient, norm_.gradient);
  return ok_status();
}

}  // namespace penstock::worker
