#include "worker/model/blocks/experts.h"

#include <algorithm>

#include "base/check.h"
#include "plan/spec/network_widths.h"
#include "worker/model/activation_type.h"
#include "worker/model/model_stage.h"

namespace penstock::worker {

using kernels::DataType;
using kernels::Dispatch;
using kernels::Operators;
using kernels::Routing;
using kernels::TensorView;

namespace {

// The first values, as those of so many rows with one choice each.
TensorView column(TensorView values, int64_t rows) {
  return {values.data(), values.type(), {rows, 1}};
}

BlockPayloads payloads_of(const StageEnvironment& environment, LayerIndex layer) {
  PENSTOCK_CHECK(environment.payloads != nullptr, "layer {} needs payload slots", layer.value);
  return environment.payloads->of_block(layer);
}

}  // namespace

Experts::Saved::Saved(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout) {
  const plan::MoeSpec& moe = job.model.moe;
  const DataType type = activation_type(job);
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t parts = job.expert_parts();
  const int64_t rows_here = parts * job.local_expert_rows();
  const int64_t before = layout.bytes();
  probabilities = layout.place(DataType::Float32, {tokens, moe.num_experts});
  log_sum_exp = layout.place(DataType::Float32, {tokens});
  expert = layout.place(DataType::Int32, {tokens, moe.num_experts_per_tok});
  weight = layout.place(DataType::Float32, {tokens, moe.num_experts_per_tok});
  row = layout.place(DataType::Int32, {tokens, moe.num_experts_per_tok});
  source = layout.place(DataType::Int32, {parts * job.expert_rows()});
  offsets = layout.place(DataType::Int32, {parts * (moe.num_experts + 1)});
  if (job.parallel.expert > 1) {
    counts = layout.place(DataType::Int32, {parts * job.parallel.expert, job.local_experts()});
  }
  layout.count_as_routes(layout.bytes() - before);
  gate_up = layout.place(type, {rows_here, 2 * moe.moe_intermediate_size});
  if (form == plan::BackwardForm::Split)
    weighted = layout.place(type, {rows_here, moe.moe_intermediate_size});
  if (moe.num_shared_experts > 0)
    shared.emplace(job, plan::shared_intermediate_size(job.model), form, layout);
}

Experts::Experts(const StageEnvironment& environment, LayerIndex layer, const Saved& saved)
    : saved_(saved),
      payloads_(payloads_of(environment, layer)),
      leases_(static_cast<size_t>(payloads_.activation_slots)),
      payload_(payload_place(environment.job)),
      parts_(environment.job.expert_parts()),
      ranks_(environment.job.parallel.expert),
      global_batch_size_(environment.job.train.global_batch_size),
      microbatch_size_(environment.job.train.microbatch_size),
      sequence_length_(environment.job.data.sequence_length),
      capacity_(environment.job.expert_capacity()),
      normalise_(environment.job.model.moe.norm_topk_prob),
      scales_{
          .balance = environment.job.model.moe.router_aux_loss_coef / static_cast<double>(global_batch_size_),
          .z = environment.job.model.moe.router_z_loss_coef /
               static_cast<double>(environment.job.tokens_per_step())},
      router_(environment.parameters.of_layer(layer, "mlp.gate")) {
  const plan::JobSpec& job = environment.job;
  const plan::ExpertRange range = plan::experts_at(job, environment.place);
  for (int64_t expert = range.first; expert < range.end; ++expert) {
    const auto of_expert = [&](const char* part) -> const Parameter& {
      return environment.parameters.of_layer(layer, fmt::format("mlp.experts.{}.{}", expert, part));
    };
    gate_.push_back(&of_expert("gate_proj"));
    down_.push_back(&of_expert("down_proj"));
    gradients_.push_back({gate_.back()->gradient, of_expert("up_proj").gradient, down_.back()->gradient});
  }
  weights_.resize(gate_.size());
  if (saved.shared) shared_.emplace(layer, "mlp.shared_experts", environment.parameters, *saved.shared);
  // A step for every microbatch in flight, and the one that has just ended.
  loads_.resize(leases_.size() + 1);
  for (ExpertLoad& load : loads_) {
    load.layer = layer;
    load.first_expert = range.first;
    load.rows.resize(weights_.size());
  }
  if (ranks_ == 1) return;
  const GroupMember* const group = environment.expert_group;
  PENSTOCK_CHECK(group != nullptr && group->ranks == ranks_, "layer {} shares its experts out among {} ranks",
                 layer.value, ranks_);
  const int64_t tokens = job.tokens_per_part();
  const RowLimits limits{.for_expert = capacity_ > 0 ? std::min(capacity_, tokens) : tokens,
                         .for_rank = job.local_expert_rows() / ranks_};
  for (int64_t part = 0; part < parts_; ++part) {
    exchanges_.push_back(
        std::make_unique<RowExchange>(*group, job.model.moe.num_experts, limits, environment.waits));
  }
}

TensorView Experts::of_part(TensorView all, int64_t index) const {
  const int64_t rows = all.size(0) / parts_;
  return all.rows(index * rows, rows);
}

Experts::Part Experts::part(const ItemCall& call, int64_t index) const {
  const auto saved = [&](const Place& place) { return of_part(place.in(call.slot), index); };
  Part part{.index = index,
            .routing = {saved(saved_.probabilities), saved(saved_.log_sum_exp), saved(saved_.expert),
                        saved(saved_.weight)},
            .own = {saved(saved_.row), saved(saved_.source), saved(saved_.offsets)},
            .route = {},
            .gate_up = saved(saved_.gate_up),
            .weighted = backward_is_split() ? saved(saved_.weighted)
                                            : of_part(call.workspace.expert_weighted, index)};
  if (shared_out()) {
    part.route = {.offsets = part.own.offsets, .counts = saved(saved_.counts), .alone = call.warm_up};
  }
  return part;
}

TensorView Experts::inputs(const ItemCall& call, int64_t part) const {
  return of_part(payload_.in(leases(call).inputs.data()), part);
}

TensorView Experts::output_gradients(const ItemCall& call, int64_t part) const {
  return of_part(payload_.in(leases(call).output_gradients.data()), part);
}

void Experts::forget_forwards() {
  for (Leases& each : leases_) each = {};
  for (ExpertLoad& load : loads_) load.begin(StepIndex());
}

// Their packed copies move with the version of the weights.
std::span<const kernels::ExpertWeights> Experts::weights() {
  for (size_t e = 0; e < weights_.size(); ++e)
    weights_[e] = {gate_[e]->packed.weight, down_[e]->packed.weight};
  return weights_;
}

// The last microbatch of a step may be filled up with sequences that are not of it.
kernels::RouterLossShape Experts::counted(const ItemCall& call, int64_t part) const {
  const int64_t sequences = microbatch_size_ / parts_;
  const int64_t before = call.microbatch_of_step.value * microbatch_size_ + part * sequences;
  return {std::clamp<int64_t>(global_batch_size_ - before, 0, sequences), sequence_length_};
}

Dispatch Experts::arrivals(const ItemCall& call, const Part& part) const {
  const Workspace& space = call.workspace;
  const TensorView row = of_part(space.arrival_row, part.index);
  return plan_arrivals(part.route.counts,
                       {column(row, row.elements()), of_part(space.arrival_source, part.index),
                        of_part(space.arrival_offsets, part.index)});
}

TensorView Experts::offsets_here(const ItemCall& call, const Part& part) const {
  return shared_out() ? arrivals(call, part).offsets : part.own.offsets;
}

// The parts of a microbatch have messages under way at once: where one of them fails, those of the others end with it,
// while the group's endpoint is there.
Status Experts::end_together(const Status& status) {
  if (status.ok()) return status;
  for (const std::unique_ptr<RowExchange>& exchange : exchanges_) exchange->give_up(status);
  return status;
}

Status Experts::forward(const ItemCall& call, TensorView x, TensorView added, TensorView output) {
  return end_together(forward_parts(call, x, added, output));
}

Status Experts::forward_parts(const ItemCall& call, TensorView x, TensorView added, TensorView output) {
  PENSTOCK_ASSIGN_OR_RETURN(leases(call).inputs, payloads_.inputs->acquire(call.microbatch));
  int64_t dropped = 0;
  for (int64_t p = 0; p < parts_; ++p) {
    const Part part = this->part(call, p);
    call.operators.router(of_part(x, p), router_.value, normalise_, part.routing);
    dropped += call.operators.plan_dispatch(part.routing.expert, capacity_, part.own);
    PENSTOCK_RETURN_IF_ERROR(send_inputs(call, part, of_part(x, p)));
  }
  // While the rows travel.
  if (shared_) {
    PENSTOCK_RETURN_IF_ERROR(shared_->forward(call, x, added, output));
    added = output;
  }
  for (int64_t p = 0; p < parts_; ++p) PENSTOCK_RETURN_IF_ERROR(run_experts(call, part(call, p)));
  for (int64_t p = 0; p < parts_; ++p) {
    const TensorView residual = added.empty() ? added : of_part(added, p);
    PENSTOCK_RETURN_IF_ERROR(combine(call, part(call, p), residual, of_part(output, p)));
  }
  if (!call.warm_up && !call.evaluation && !call.again) note_load(call, dropped);
  if (!call.keeps) leases(call).inputs.release();
  return ok_status();
}

Status Experts::send_inputs(const ItemCall& call, const Part& part, TensorView x) {
  if (!shared_out()) {
    call.operators.gather_rows(x, part.own, inputs(call, part.index));
    return ok_status();
  }
  const TensorView own = of_part(call.workspace.expert_rows, part.index);
  call.operators.gather_rows(x, part.own, own);
  PENSTOCK_RETURN_IF_ERROR(exchange(part).exchange_counts(part.route));
  return exchange(part).post_forth(part.route, own, of_part(call.workspace.arrived_rows, part.index));
}

Status Experts::run_experts(const ItemCall& call, const Part& part) {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  const TensorView own = of_part(space.expert_rows, part.index);
  const TensorView payload = inputs(call, part.index);
  if (!shared_out()) {
    ops.experts(payload, part.own.offsets, weights(), part.gate_up, own);
    return ok_status();
  }
  PENSTOCK_RETURN_IF_ERROR(exchange(part).wait());
  const Dispatch from = arrivals(call, part);
  const TensorView arrived = of_part(space.arrived_rows, part.index);
  ops.gather_rows(arrived.rows(0, from.row.size(0)), from, payload);
  ops.experts(payload, from.offsets, weights(), part.gate_up, space.rows_here);
  ops.combine_rows(space.rows_here, from, {}, {}, arrived.rows(0, from.row.size(0)));
  return exchange(part).post_back(part.route, arrived, own);
}

Status Experts::combine(const ItemCall& call, const Part& part, TensorView added, TensorView output) {
  if (shared_out()) PENSTOCK_RETURN_IF_ERROR(exchange(part).wait());
  call.operators.combine_rows(of_part(call.workspace.expert_rows, part.index), part.own, part.routing.weight,
                              added, output);
  return ok_status();
}

Status Experts::input_gradient(const ItemCall& call, TensorView output_gradient, TensorView x_gradient) {
  return end_together(input_gradient_parts(call, output_gradient, x_gradient));
}

Status Experts::input_gradient_parts(const ItemCall& call, TensorView output_gradient,
                                     TensorView x_gradient) {
  if (shared_out()) {
    PENSTOCK_ASSIGN_OR_RETURN(leases(call).output_gradients,
                              payloads_.output_gradients->acquire(call.microbatch));
  }
  for (int64_t p = 0; p < parts_; ++p) {
    PENSTOCK_RETURN_IF_ERROR(send_gradients(call, part(call, p), of_part(output_gradient, p)));
  }
  if (shared_) PENSTOCK_RETURN_IF_ERROR(shared_->input_gradient(call, output_gradient, x_gradient));
  for (int64_t p = 0; p < parts_; ++p) PENSTOCK_RETURN_IF_ERROR(run_input_gradient(call, part(call, p)));
  for (int64_t p = 0; p < parts_; ++p) {
    PENSTOCK_RETURN_IF_ERROR(combine_gradients(call, part(call, p), of_part(x_gradient, p)));
  }
  return ok_status();
}

Status Experts::send_gradients(const ItemCall& call, const Part& part, TensorView output_gradient) {
  const Workspace& space = call.workspace;
  const TensorView own = of_part(space.expert_rows, part.index);
  const TensorView own_weight = of_part(space.expert_row_weight, part.index);
  call.operators.gather_rows(output_gradient, part.own, own);
  call.operators.gather_choices(part.routing.weight, part.own, own_weight);
  if (!shared_out()) return ok_status();
  PENSTOCK_RETURN_IF_ERROR(
      exchange(part).post_forth(part.route, own, of_part(space.arrived_rows, part.index)));
  return exchange(part).post_forth(part.route, own_weight, of_part(space.arrived_values, part.index));
}

Status Experts::run_input_gradient(const ItemCall& call, const Part& part) {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  const TensorView own_gradient = of_part(space.expert_payload_gradient, part.index);
  const TensorView own_weight_gradient = of_part(space.expert_row_gradient, part.index);
  kernels::ExpertInputGradient rows{.output_gradient = of_part(space.expert_rows, part.index),
                                    .weight = of_part(space.expert_row_weight, part.index),
                                    .gate_up = part.gate_up,
                                    .gate_up_gradient = part.gate_up,
                                    .weighted = part.weighted,
                                    .weight_gradient = own_weight_gradient,
                                    .payload_gradient = own_gradient};
  if (!shared_out()) {
    ops.experts_input_gradient(rows, part.own.offsets, weights());
    return ok_status();
  }
  PENSTOCK_RETURN_IF_ERROR(exchange(part).wait());
  const Dispatch from = arrivals(call, part);
  const int64_t count = from.row.size(0);
  const TensorView arrived = of_part(space.arrived_rows, part.index);
  const TensorView values = of_part(space.arrived_values, part.index);
  rows.output_gradient = output_gradients(call, part.index);
  rows.weight = space.row_weight_here;
  rows.weight_gradient = space.row_gradient_here;
  rows.payload_gradient = space.rows_here;
  ops.gather_rows(arrived.rows(0, count), from, rows.output_gradient);
  ops.gather_choices(column(values, count), from, rows.weight);
  ops.experts_input_gradient(rows, from.offsets, weights());
  ops.combine_rows(rows.payload_gradient, from, {}, {}, arrived.rows(0, count));
  ops.return_choices(rows.weight_gradient, from, column(values, count));
  PENSTOCK_RETURN_IF_ERROR(exchange(part).post_back(part.route, arrived, own_gradient));
  return exchange(part).post_back(part.route, values, own_weight_gradient);
}

Status Experts::combine_gradients(const ItemCall& call, const Part& part, TensorView x_gradient) {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  if (shared_out()) PENSTOCK_RETURN_IF_ERROR(exchange(part).wait());
  const TensorView choice_gradient = of_part(space.choice_gradient, part.index);
  ops.return_choices(of_part(space.expert_row_gradient, part.index), part.own, choice_gradient);
  const TensorView logit_gradient = part.routing.probabilities;
  ops.router_gradient(part.routing, normalise_, choice_gradient, counted(call, part.index), scales_,
                      logit_gradient);
  // Beside shared experts, whose gradient stands there already.
  const TensorView routed = shared_ ? of_part(space.normed, part.index) : x_gradient;
  ops.router_input_gradient(logit_gradient, router_.value, routed);
  ops.combine_rows(of_part(space.expert_payload_gradient, part.index), part.own, {}, routed, routed);
  if (shared_) ops.add(x_gradient, routed, x_gradient);
  return ok_status();
}

void Experts::weight_gradient(const ItemCall& call, TensorView output_gradient, TensorView x) {
  Operators& ops = call.operators;
  for (int64_t p = 0; p < parts_; ++p) {
    const Part part = this->part(call, p);
    const TensorView gradient_rows =
        shared_out() ? output_gradients(call, p) : of_part(call.workspace.expert_rows, p);
    // In a whole backward they still stand where the input gradient read them.
    if (!shared_out() && backward_is_split()) {
      ops.gather_rows(of_part(output_gradient, p), part.own, gradient_rows);
    }
    ops.experts_weight_gradient({.payload = inputs(call, p),
                                 .output_gradient = gradient_rows,
                                 .gate_up_gradient = part.gate_up,
                                 .weighted = part.weighted},
                                offsets_here(call, part), gradients_);
  }
  ops.router_weight_gradient(saved_.probabilities.in(call.slot), x, router_.gradient);
  if (shared_) shared_->weight_gradient(call, output_gradient, x);
  leases(call) = {};
}

ExpertLoad& Experts::load_of(StepIndex step) {
  ExpertLoad& load = loads_[static_cast<size_t>(step.value) % loads_.size()];
  if (load.step != step) load.begin(step);
  return load;
}

// Rows of every rank's tokens, and what this rank's router decided.
void Experts::note_load(const ItemCall& call, int64_t dropped) {
  ExpertLoad& load = load_of(call.step);
  for (int64_t p = 0; p < parts_; ++p) {
    const Part part = this->part(call, p);
    const kernels::RouterLossShape counts = counted(call, p);
    const kernels::RouterLosses losses = call.operators.router_losses(part.routing, counts);
    const int32_t* const offsets = offsets_here(call, part).i32();
    for (size_t e = 0; e < load.rows.size(); ++e) load.rows[e] += offsets[e + 1] - offsets[e];
    load.balance += losses.balance;
    load.z += losses.z;
    load.sequences += counts.sequences;
    load.tokens += counts.sequences * counts.sequence_length;
  }
  load.dropped += dropped;
}

}  // namespace penstock::worker
