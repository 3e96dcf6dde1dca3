#include "worker/model/blocks/transformer_block.h"

#include <array>
#include <string>

#include "worker/model/activation_type.h"
#include "worker/model/blocks/experts.h"
#include "worker/model/blocks/mlp.h"
#include "worker/model/model_stage.h"

namespace penstock::worker {

using kernels::DataType;
using kernels::Operators;
using kernels::TensorView;
using Branch = DropoutPlace::Branch;

TransformerBlock::Saved::Saved(const plan::JobSpec& job, plan::BackwardForm form, ItemLayout layout) {
  const plan::ModelSpec& model = job.model;
  const DataType type = activation_type(job);
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t query_width = model.num_attention_heads * model.head_size();
  const int64_t key_value_width = model.num_key_value_heads * model.head_size();
  x = layout.input.place(type, {tokens, model.hidden_size});
  inverse_rms_1 = layout.saved.place(DataType::Float32, {tokens});
  projected = layout.saved.place(type, {tokens, query_width + 2 * key_value_width});
  attended = layout.saved.place(type, {tokens, query_width});
  log_sum_exp = layout.saved.place(DataType::Float32, {tokens * model.num_attention_heads});
  h = layout.saved.place(type, {tokens, model.hidden_size});
  inverse_rms_2 = layout.saved.place(DataType::Float32, {tokens});
  if (form == plan::BackwardForm::Fused) return;
  feed_forward_gradient = layout.saved.place(type, {tokens, model.hidden_size});
  attention_gradient = layout.saved.place(type, {tokens, model.hidden_size});
}

namespace {

std::unique_ptr<FeedForward> make_feed_forward(const StageEnvironment& environment, LayerIndex layer,
                                               plan::BackwardForm form, ItemLayout layout) {
  const plan::JobSpec& job = environment.job;
  if (job.model.has_experts(layer)) {
    return std::make_unique<Experts>(environment, layer, Experts::Saved(job, form, layout.saved));
  }
  return std::make_unique<Mlp>(layer, "mlp", environment.parameters,
                               Mlp::Saved(job, job.model.intermediate_size, form, layout.saved));
}

}  // namespace

void TransformerBlock::place(const plan::JobSpec& job, LayerIndex layer, plan::BackwardForm form,
                             ItemLayout layout) {
  Saved(job, form, layout);
  if (job.model.has_experts(layer)) {
    Experts::Saved(job, form, layout.saved);
  } else {
    Mlp::Saved(job, job.model.intermediate_size, form, layout.saved);
  }
}

TransformerBlock::Weights::Weights(const plan::ModelSpec& model, LayerIndex layer,
                                   const ParameterStore& parameters)
    : attention_norm(parameters.of_layer(layer, "input_layernorm")),
      query(parameters.of_layer(layer, "self_attn.q_proj")),
      key(parameters.of_layer(layer, "self_attn.k_proj")),
      value(parameters.of_layer(layer, "self_attn.v_proj")),
      attention_output(parameters.of_layer(layer, "self_attn.o_proj")),
      feed_forward_norm(parameters.of_layer(layer, "post_attention_layernorm")) {
  if (!model.qk_norm) return;
  query_norm = &parameters.of_layer(layer, "self_attn.q_norm");
  key_norm = &parameters.of_layer(layer, "self_attn.k_norm");
}

TransformerBlock::TransformerBlock(const StageEnvironment& environment, LayerIndex layer,
                                   plan::BackwardForm form, ItemLayout layout)
    : model_(environment.job.model),
      layer_(layer),
      seed_(environment.job.train.seed),
      sequence_length_(environment.job.data.sequence_length),
      shape_{.sequences = environment.job.train.microbatch_size,
             .sequence_length = environment.job.data.sequence_length,
             .query_heads = model_.num_attention_heads,
             .key_value_heads = model_.num_key_value_heads,
             .head_size = model_.head_size()},
      saved_(environment.job, form, layout),
      weights_(model_, layer, environment.parameters),
      feed_forward_(make_feed_forward(environment, layer, form, layout)) {}

Status TransformerBlock::forward(const ItemCall& call, TensorView output) {
  attention_forward(call);
  return feed_forward_forward(call, output);
}

void TransformerBlock::attention_forward(const ItemCall& call) {
  Operators& ops = call.operators;
  const TensorView x = saved_.x.in(call.input_slot);
  const TensorView attended = saved_.attended.in(call.slot);
  const TensorView normed = call.workspace.normed;

  ops.rms_norm(x, weights_.attention_norm.value, model_.rms_norm_eps, normed,
               saved_.inverse_rms_1.in(call.slot));
  ops.linear(normed, weights_.query.packed.weight, saved_.projected.in(call.slot));
  if (!model_.qk_norm) rotate(call, heads_of(saved_.projected.in(call.slot)));
  const Heads heads = attention_inputs(call);
  ops.attention(shape_, heads.query, heads.key, heads.value, attended, saved_.log_sum_exp.in(call.slot),
                call.document_starts);
  const TensorView h = saved_.h.in(call.slot);
  ops.linear(attended, weights_.attention_output.packed.weight, h, added_at_once(x));
  add_dropped(call, Branch::Attention, x, h);
}

Status TransformerBlock::feed_forward_forward(const ItemCall& call, TensorView output) {
  const TensorView h = saved_.h.in(call.slot);
  const TensorView normed = call.workspace.normed;
  call.operators.rms_norm(h, weights_.feed_forward_norm.value, model_.rms_norm_eps, normed,
                          saved_.inverse_rms_2.in(call.slot));
  PENSTOCK_RETURN_IF_ERROR(feed_forward_->forward(call, normed, added_at_once(h), output));
  add_dropped(call, Branch::FeedForward, h, output);
  return ok_status();
}

// output = residual + drop(branch). Without dropout the branch's last operation adds the residual and rounds once.
TensorView TransformerBlock::added_at_once(TensorView residual) const {
  return drops() ? TensorView() : residual;
}
void TransformerBlock::add_dropped(const ItemCall& call, Branch branch, TensorView residual,
                                   TensorView output) const {
  if (!drops() || (call.again && branch == Branch::FeedForward)) return;
  call.operators.dropout(output, model_.hidden_dropout, mask_key(call, branch), output);
  call.operators.add(residual, output, output);
}

// Query, key and value are the columns of one matrix, one after another.
TransformerBlock::Heads TransformerBlock::heads_of(TensorView projected) const {
  const int64_t query = shape_.query_heads * shape_.head_size;
  const int64_t key = shape_.key_value_heads * shape_.head_size;
  return {projected.columns(0, query), projected.columns(query, key), projected.columns(query + key, key)};
}

void TransformerBlock::rotate(const ItemCall& call, const Heads& heads) const {
  call.operators.rope(heads.query, sequence_length_, model_.head_size(), model_.rope_theta);
  call.operators.rope(heads.key, sequence_length_, model_.head_size(), model_.rope_theta);
}

// What the forward has saved, or made of it in the workspace.
TransformerBlock::Heads TransformerBlock::attention_inputs(const ItemCall& call) const {
  const Heads saved = heads_of(saved_.projected.in(call.slot));
  if (!model_.qk_norm) return saved;
  const Workspace& space = call.workspace;
  call.operators.rms_norm(saved.query, weights_.query_norm->value, model_.rms_norm_eps, space.query,
                          space.query_inverse_rms);
  call.operators.rms_norm(saved.key, weights_.key_norm->value, model_.rms_norm_eps, space.key,
                          space.key_inverse_rms);
  const Heads normed{space.query, space.key, saved.value};
  rotate(call, normed);
  return normed;
}

// From the gradients of the rotated heads, where `heads` are, to those of the projections, where those were saved.
void TransformerBlock::heads_backward(const ItemCall& call, const Heads& heads) const {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  ops.rope_backward(heads.query, sequence_length_, model_.head_size(), model_.rope_theta);
  ops.rope_backward(heads.key, sequence_length_, model_.head_size(), model_.rope_theta);
  if (!model_.qk_norm) return;
  const Heads saved = heads_of(saved_.projected.in(call.slot));
  ops.rms_norm_backward(saved.query, weights_.query_norm->value, space.query_inverse_rms, heads.query,
                        saved.query, weights_.query_norm->gradient);
  ops.rms_norm_backward(saved.key, weights_.key_norm->value, space.key_inverse_rms, heads.key, saved.key,
                        weights_.key_norm->gradient);
}

uint64_t TransformerBlock::mask_key(const ItemCall& call, Branch branch) const {
  return dropout_key({.seed = seed_,
                      .step = call.step.value,
                      .microbatch = call.microbatch_of_step.value,
                      .layer = layer_.value,
                      .branch = branch});
}

// Without dropout the two are one tensor.
void TransformerBlock::drop_gradient(const ItemCall& call, Branch branch, TensorView of_residual,
                                     TensorView of_branch) const {
  if (drops()) call.operators.dropout(of_residual, model_.hidden_dropout, mask_key(call, branch), of_branch);
}

// Of h.
TensorView TransformerBlock::residual_gradient(const ItemCall& call, const Left& left) const {
  return drops() ? call.workspace.residual_gradient : left.attention_gradient;
}

Status TransformerBlock::backward(const ItemCall& call, TensorView output_gradient,
                                  TensorView input_gradient) {
  const Workspace& space = call.workspace;
  Left left{output_gradient, space.residual_gradient};
  if (drops()) left = {space.branch_gradient[0], space.branch_gradient[1]};
  PENSTOCK_RETURN_IF_ERROR(feed_forward_input_gradient(call, output_gradient, left));
  attention_input_gradient(call, left, input_gradient);
  add_weight_gradients(call, left);
  return ok_status();
}

// With dropout the branch's gradient is kept, which I makes of this one.
TensorView TransformerBlock::saved_output_gradient(void* slot) const {
  return drops() ? TensorView() : saved_.feed_forward_gradient.in(slot);
}

TransformerBlock::Left TransformerBlock::left_in_slot(void* slot) const {
  return {saved_.feed_forward_gradient.in(slot), saved_.attention_gradient.in(slot)};
}

Status TransformerBlock::input_gradient(const ItemCall& call, TensorView output_gradient,
                                        TensorView input_gradient) {
  const Left left = left_in_slot(call.slot);
  PENSTOCK_RETURN_IF_ERROR(feed_forward_input_gradient(call, output_gradient, left));
  attention_input_gradient(call, left, input_gradient);
  return ok_status();
}

void TransformerBlock::weight_gradient(const ItemCall& call) {
  add_weight_gradients(call, left_in_slot(call.slot));
}

// From the gradient of the output to that of h.
Status TransformerBlock::feed_forward_input_gradient(const ItemCall& call, TensorView output_gradient,
                                                     const Left& left) const {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  const TensorView h = saved_.h.in(call.slot);

  drop_gradient(call, Branch::FeedForward, output_gradient, left.feed_forward_gradient);
  PENSTOCK_RETURN_IF_ERROR(
      feed_forward_->input_gradient(call, left.feed_forward_gradient, space.normed_gradient));
  ops.rms_norm_backward(h, weights_.feed_forward_norm.value, saved_.inverse_rms_2.in(call.slot),
                        space.normed_gradient, residual_gradient(call, left),
                        weights_.feed_forward_norm.gradient, output_gradient, h);
  return ok_status();
}

// From the gradient of h to that of x.
void TransformerBlock::attention_input_gradient(const ItemCall& call, const Left& left,
                                                TensorView input_gradient) const {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  const TensorView x = saved_.x.in(call.input_slot);

  drop_gradient(call, Branch::Attention, residual_gradient(call, left), left.attention_gradient);
  ops.linear_input_gradient(left.attention_gradient, weights_.attention_output.packed.weight,
                            space.attended_gradient);
  const Heads heads = attention_inputs(call);
  ops.attention_backward(shape_, heads.query, heads.key, heads.value, saved_.attended.in(call.slot),
                         saved_.log_sum_exp.in(call.slot), space.attended_gradient, heads.query, heads.key,
                         heads.value, call.document_starts);
  heads_backward(call, heads);
  ops.linear_input_gradient(saved_.projected.in(call.slot), weights_.query.packed.weight,
                            space.normed_gradient);
  ops.rms_norm_backward(x, weights_.attention_norm.value, saved_.inverse_rms_1.in(call.slot),
                        space.normed_gradient, input_gradient, weights_.attention_norm.gradient,
                        residual_gradient(call, left), x);
}

// Of all matrices, each from what its product read and the gradient of what that made.
void TransformerBlock::add_weight_gradients(const ItemCall& call, const Left& left) const {
  Operators& ops = call.operators;
  feed_forward_->weight_gradient(call, left.feed_forward_gradient, saved_.h.in(call.slot));
  ops.linear_weight_gradient(left.attention_gradient, saved_.attended.in(call.slot),
                             {&weights_.attention_output.gradient, 1});
  ops.linear_weight_gradient(
      saved_.projected.in(call.slot), saved_.x.in(call.input_slot),
      std::array{weights_.query.gradient, weights_.key.gradient, weights_.value.gradient});
}

}  // namespace penstock::worker
