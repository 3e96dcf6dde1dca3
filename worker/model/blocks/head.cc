#include "worker/model/blocks/head.h"

namespace penstock::worker {

using kernels::DataType;
using kernels::TensorView;

HeadItem::Saved::Saved(const plan::JobSpec& job, Layout& layout) {
  const int64_t tokens = job.tokens_per_microbatch();
  x = layout.place(DataType::Float32, {tokens, job.model.hidden_size});
  inverse_rms = layout.place(DataType::Float32, {tokens});
  targets = layout.place(DataType::Int32, {tokens});
  log_sum_exp = layout.place(DataType::Float32, {tokens});
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
  if (targets_ == 0) {
    PENSTOCK_ASSIGN_OR_RETURN(targets_, source_->target_count(call.step));
  }
  const TensorView targets = saved_.targets.in(call.slot);
  const std::span<int32_t> tokens(targets.i32(), static_cast<size_t>(targets.elements()));
  PENSTOCK_RETURN_IF_ERROR(source_->microbatch(call.step, call.microbatch, {}, tokens));

  const TensorView normed = call.workspace.normed;
  call.operators.rms_norm(saved_.x.in(call.slot), norm_.weight, epsilon_, normed,
                          saved_.inverse_rms.in(call.slot));
  const double loss =
      call.operators.head_loss(normed, weight_.weight, targets, saved_.log_sum_exp.in(call.slot));
  return loss_.record(call.microbatch, loss);
}

void HeadItem::backward(const ItemCall& call, TensorView, TensorView input_gradient) {
  const Workspace& space = call.workspace;
  const TensorView x = saved_.x.in(call.slot);
  call.operators.rms_norm(x, norm_.weight, epsilon_, space.normed, space.inverse_rms);
  call.operators.head_loss_backward(space.normed, weight_.weight, saved_.targets.in(call.slot),
                                    saved_.log_sum_exp.in(call.slot), 1.0 / static_cast<double>(targets_),
                                    space.normed_gradient, weight_.gradient);
  call.operators.rms_norm_backward(x, norm_.weight, saved_.inverse_rms.in(call.slot), space.normed_gradient,
                                   input_gradient, norm_.gradient);
}

}  // namespace penstock::worker
