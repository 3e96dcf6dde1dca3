#include "worker/model/blocks/experts.h"

#include <algorithm>

#include "worker/model/activation_type.h"

namespace penstock::worker {

using kernels::DataType;
using kernels::Dispatch;
using kernels::Operators;
using kernels::Routing;
using kernels::TensorView;

Experts::Saved::Saved(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout) {
  const plan::MoeSpec& moe = job.model.moe;
  const DataType type = activation_type(job);
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t rows = job.expert_rows();
  probabilities = layout.place(DataType::Float32, {tokens, moe.num_experts});
  log_sum_exp = layout.place(DataType::Float32, {tokens});
  expert = layout.place(DataType::Int32, {tokens, moe.num_experts_per_tok});
  weight = layout.place(DataType::Float32, {tokens, moe.num_experts_per_tok});
  row = layout.place(DataType::Int32, {tokens, moe.num_experts_per_tok});
  source = layout.place(DataType::Int32, {rows});
  offsets = layout.place(DataType::Int32, {moe.num_experts + 1});
  gate_up = layout.place(type, {rows, 2 * moe.moe_intermediate_size});
  if (form == plan::BackwardForm::Split) weighted = layout.place(type, {rows, moe.moe_intermediate_size});
}

Experts::Experts(const plan::JobSpec& job, LayerIndex layer, const ParameterStore& parameters,
                 const Saved& saved, const BlockPayloads& payloads)
    : saved_(saved),
      inputs_(payloads.inputs),
      leases_(static_cast<size_t>(payloads.activation_slots)),
      payload_(Layout().place(activation_type(job), {job.local_expert_rows(), job.model.hidden_size})),
      global_batch_size_(job.train.global_batch_size),
      microbatch_size_(job.train.microbatch_size),
      sequence_length_(job.data.sequence_length),
      capacity_(job.expert_capacity()),
      normalise_(job.model.moe.norm_topk_prob),
      scales_{.balance = job.model.moe.router_aux_loss_coef / static_cast<double>(global_batch_size_),
              .z = job.model.moe.router_z_loss_coef / static_cast<double>(job.tokens_per_step())},
      router_(parameters.of_layer(layer, "mlp.gate")),
      weights_(static_cast<size_t>(job.model.moe.num_experts)) {
  for (int64_t expert = 0; expert < job.model.moe.num_experts; ++expert) {
    const auto of_expert = [&](const char* part) -> const Parameter& {
      return parameters.of_layer(layer, fmt::format("mlp.experts.{}.{}", expert, part));
    };
    gate_.push_back(&of_expert("gate_proj"));
    down_.push_back(&of_expert("down_proj"));
    gradients_.push_back({gate_.back()->gradient, of_expert("up_proj").gradient, down_.back()->gradient});
  }
  load_.layer = layer;
  load_.rows.resize(weights_.size());
}

Routing Experts::routing(void* slot) const {
  return {saved_.probabilities.in(slot), saved_.log_sum_exp.in(slot), saved_.expert.in(slot),
          saved_.weight.in(slot)};
}
Dispatch Experts::dispatch(void* slot) const {
  return {saved_.row.in(slot), saved_.source.in(slot), saved_.offsets.in(slot)};
}
TensorView Experts::weighted(const ItemCall& call) const {
  return saved_.weighted.rank == 0 ? call.workspace.expert_weighted : saved_.weighted.in(call.slot);
}

TensorView Experts::payload(const ItemCall& call) const {
  return payload_.in(leases_[static_cast<size_t>(call.slot_index)].data());
}

void Experts::forget_forwards() {
  for (PayloadLease& lease : leases_) lease = {};
}

// Their packed copies move with the version of the weights.
std::span<const kernels::ExpertWeights> Experts::weights() {
  for (size_t e = 0; e < weights_.size(); ++e)
    weights_[e] = {gate_[e]->packed.weight, down_[e]->packed.weight};
  return weights_;
}

// The last microbatch of a step may be filled up with sequences that are not of it.
kernels::RouterLossShape Experts::counted(const ItemCall& call) const {
  const int64_t left = global_batch_size_ - call.microbatch_of_step.value * microbatch_size_;
  return {std::clamp<int64_t>(left, 0, microbatch_size_), sequence_length_};
}

Status Experts::forward(const ItemCall& call, TensorView x, TensorView added, TensorView output) {
  Operators& ops = call.operators;
  const Routing routed = routing(call.slot);
  const Dispatch to = dispatch(call.slot);
  const TensorView outputs = call.workspace.expert_rows;
  PayloadLease& lease = leases_[static_cast<size_t>(call.slot_index)];
  PENSTOCK_ASSIGN_OR_RETURN(lease, inputs_->acquire(call.microbatch));
  ops.router(x, router_.value, normalise_, routed);
  const int64_t dropped = ops.plan_dispatch(routed.expert, capacity_, to);
  ops.gather_rows(x, to, payload(call));
  ops.experts(payload(call), to.offsets, weights(), saved_.gate_up.in(call.slot), outputs);
  ops.combine_rows(outputs, to, routed.weight, added, output);
  if (!call.evaluation && !call.again) note_load(call, to, dropped);
  if (!call.keeps) lease.release();
  return ok_status();
}

Status Experts::input_gradient(const ItemCall& call, TensorView output_gradient, TensorView x_gradient) {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  const Routing routed = routing(call.slot);
  const Dispatch to = dispatch(call.slot);
  const TensorView gate_up = saved_.gate_up.in(call.slot);
  ops.gather_rows(output_gradient, to, space.expert_rows);
  ops.gather_choices(routed.weight, to, space.expert_row_weight);
  ops.experts_input_gradient({.output_gradient = space.expert_rows,
                              .weight = space.expert_row_weight,
                              .gate_up = gate_up,
                              .gate_up_gradient = gate_up,
                              .weighted = weighted(call),
                              .weight_gradient = space.expert_row_gradient,
                              .payload_gradient = space.expert_payload_gradient},
                             to.offsets, weights());
  ops.return_choices(space.expert_row_gradient, to, space.choice_gradient);
  const TensorView logit_gradient = routed.probabilities;
  ops.router_gradient(routed, normalise_, space.choice_gradient, counted(call), scales_, logit_gradient);
  ops.router_input_gradient(logit_gradient, router_.value, x_gradient);
  ops.combine_rows(space.expert_payload_gradient, to, {}, x_gradient, x_gradient);
  return ok_status();
}

void Experts::weight_gradient(const ItemCall& call, TensorView output_gradient, TensorView x) {
  Operators& ops = call.operators;
  const TensorView gradient_rows = call.workspace.expert_rows;
  const Dispatch to = dispatch(call.slot);
  ops.gather_rows(output_gradient, to, gradient_rows);
  ops.experts_weight_gradient({.payload = payload(call),
                               .output_gradient = gradient_rows,
                               .gate_up_gradient = saved_.gate_up.in(call.slot),
                               .weighted = weighted(call)},
                              to.offsets, gradients_);
  leases_[static_cast<size_t>(call.slot_index)].release();
  ops.router_weight_gradient(saved_.probabilities.in(call.slot), x, router_.gradient);
}

void Experts::note_load(const ItemCall& call, const Dispatch& to, int64_t dropped) {
  const kernels::RouterLossShape counts = counted(call);
  const kernels::RouterLosses losses = call.operators.router_losses(routing(call.slot), counts);
  const int32_t* offsets = to.offsets.i32();
  for (size_t e = 0; e < load_.rows.size(); ++e) load_.rows[e] += offsets[e + 1] - offsets[e];
  load_.dropped += dropped;
  load_.balance += losses.balance;
  load_.z += losses.z;
  load_.sequences += counts.sequences;
  load_.tokens += counts.sequences * counts.sequence_length;
}

}  // namespace penstock::worker
