#include "worker/model/blocks/transformer_block.h"

#include <string>

namespace penstock::worker {

using kernels::DataType;
using kernels::Operators;
using kernels::TensorView;
using enum kernels::Operators::Accumulate;
using Branch = DropoutPlace::Branch;

TransformerBlock::Saved::Saved(const plan::JobSpec& job, Layout& layout) {
  const plan::ModelSpec& model = job.model;
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t query_width = model.num_attention_heads * model.head_size();
  const int64_t key_value_width = model.num_key_value_heads * model.head_size();
  x = layout.place(DataType::Float32, {tokens, model.hidden_size});
  inverse_rms_1 = layout.place(DataType::Float32, {tokens});
  query = layout.place(DataType::Float32, {tokens, query_width});
  key = layout.place(DataType::Float32, {tokens, key_value_width});
  value = layout.place(DataType::Float32, {tokens, key_value_width});
  attended = layout.place(DataType::Float32, {tokens, query_width});
  log_sum_exp = layout.place(DataType::Float32, {tokens * model.num_attention_heads});
  h = layout.place(DataType::Float32, {tokens, model.hidden_size});
  inverse_rms_2 = layout.place(DataType::Float32, {tokens});
  gate = layout.place(DataType::Float32, {tokens, model.intermediate_size});
  up = layout.place(DataType::Float32, {tokens, model.intermediate_size});
}

namespace {

const Parameter& parameter_of(LayerIndex layer, const ParameterStore& parameters, const std::string& part) {
  return parameters.at(fmt::format("model.layers.{}.{}.weight", layer.value, part));
}

}  // namespace

TransformerBlock::Weights::Weights(const plan::ModelSpec& model, LayerIndex layer,
                                   const ParameterStore& parameters)
    : attention_norm(parameter_of(layer, parameters, "input_layernorm")),
      query(parameter_of(layer, parameters, "self_attn.q_proj")),
      key(parameter_of(layer, parameters, "self_attn.k_proj")),
      value(parameter_of(layer, parameters, "self_attn.v_proj")),
      attention_output(parameter_of(layer, parameters, "self_attn.o_proj")),
      feed_forward_norm(parameter_of(layer, parameters, "post_attention_layernorm")),
      gate(parameter_of(layer, parameters, "mlp.gate_proj")),
      up(parameter_of(layer, parameters, "mlp.up_proj")),
      down(parameter_of(layer, parameters, "mlp.down_proj")) {
  if (!model.qk_norm) return;
  query_norm = &parameter_of(layer, parameters, "self_attn.q_norm");
  key_norm = &parameter_of(layer, parameters, "self_attn.k_norm");
}

TransformerBlock::TransformerBlock(const plan::JobSpec& job, LayerIndex layer,
                                   const ParameterStore& parameters, Layout& layout)
    : model_(job.model),
      layer_(layer),
      seed_(job.train.seed),
      sequence_length_(job.data.sequence_length),
      shape_{.sequences = job.train.microbatch_size,
             .sequence_length = job.data.sequence_length,
             .query_heads = job.model.num_attention_heads,
             .key_value_heads = job.model.num_key_value_heads,
             .head_size = job.model.head_size()},
      saved_(job, layout),
      weights_(job.model, layer, parameters) {}

Status TransformerBlock::forward(const ItemCall& call, TensorView output) {
  attention_forward(call);
  feed_forward_forward(call, output);
  return ok_status();
}

void TransformerBlock::attention_forward(const ItemCall& call) {
  Operators& ops = call.operators;
  const TensorView x = saved_.x.in(call.slot);
  const TensorView query = saved_.query.in(call.slot);
  const TensorView key = saved_.key.in(call.slot);
  const TensorView value = saved_.value.in(call.slot);
  const TensorView attended = saved_.attended.in(call.slot);
  const TensorView h = saved_.h.in(call.slot);
  const TensorView normed = call.workspace.normed;

  ops.rms_norm(x, weights_.attention_norm.weight, model_.rms_norm_eps, normed,
               saved_.inverse_rms_1.in(call.slot));
  ops.linear(normed, weights_.query.weight, query);
  ops.linear(normed, weights_.key.weight, key);
  ops.linear(normed, weights_.value.weight, value);
  if (!model_.qk_norm) rotate(call, {query, key});
  const QueryAndKey heads = attention_inputs(call);
  ops.attention(shape_, heads.query, heads.key, value, attended, saved_.log_sum_exp.in(call.slot),
                call.document_starts);
  ops.linear(attended, weights_.attention_output.weight, h);
  drop(call, Branch::Attention, h);
  ops.add(x, h, h);
}

void TransformerBlock::rotate(const ItemCall& call, const QueryAndKey& heads) const {
  call.operators.rope(heads.query, sequence_length_, model_.head_size(), model_.rope_theta);
  call.operators.rope(heads.key, sequence_length_, model_.head_size(), model_.rope_theta);
}

// What the forward has saved, or made of it in the workspace.
TransformerBlock::QueryAndKey TransformerBlock::attention_inputs(const ItemCall& call) const {
  const TensorView query = saved_.query.in(call.slot);
  const TensorView key = saved_.key.in(call.slot);
  if (!model_.qk_norm) return {query, key};
  const Workspace& space = call.workspace;
  call.operators.rms_norm(per_head(query), weights_.query_norm->weight, model_.rms_norm_eps,
                          per_head(space.query), space.query_inverse_rms);
  call.operators.rms_norm(per_head(key), weights_.key_norm->weight, model_.rms_norm_eps, per_head(space.key),
                          space.key_inverse_rms);
  rotate(call, {space.query, space.key});
  return {space.query, space.key};
}

// From the gradients of the rotated heads' norms, in place of what attention_inputs has made, to those of the
// projections.
TransformerBlock::QueryAndKey TransformerBlock::norm_heads_backward(const ItemCall& call) {
  const Workspace& space = call.workspace;
  if (!model_.qk_norm) return {space.query_gradient, space.key_gradient};
  call.operators.rms_norm_backward(per_head(saved_.query.in(call.slot)), weights_.query_norm->weight,
                                   space.query_inverse_rms, per_head(space.query_gradient),
                                   per_head(space.query), weights_.query_norm->gradient);
  call.operators.rms_norm_backward(per_head(saved_.key.in(call.slot)), weights_.key_norm->weight,
                                   space.key_inverse_rms, per_head(space.key_gradient), per_head(space.key),
                                   weights_.key_norm->gradient);
  return {space.query, space.key};
}

// [T, heads * D] as [T * heads, D].
TensorView TransformerBlock::per_head(TensorView tensor) const {
  return {tensor.data(), tensor.type(), {tensor.elements() / model_.head_size(), model_.head_size()}};
}

uint64_t TransformerBlock::mask_key(const ItemCall& call, Branch branch) const {
  return dropout_key({.seed = seed_,
                      .step = call.step.value,
                      .microbatch = call.microbatch.value,
                      .layer = layer_.value,
                      .branch = branch});
}

void TransformerBlock::drop(const ItemCall& call, Branch branch, TensorView tensor) const {
  if (model_.hidden_dropout == 0) return;
  call.operators.dropout(tensor, model_.hidden_dropout, mask_key(call, branch), tensor);
}

// Of what the branch adds to the residual, from that of the residual: in workspace.normed_gradient, which a branch
// needs later only.
TensorView TransformerBlock::drop_gradient(const ItemCall& call, Branch branch, TensorView gradient) const {
  if (model_.hidden_dropout == 0) return gradient;
  const TensorView dropped = call.workspace.normed_gradient;
  call.operators.dropout(gradient, model_.hidden_dropout, mask_key(call, branch), dropped);
  return dropped;
}

void TransformerBlock::feed_forward_forward(const ItemCall& call, TensorView output) {
  Operators& ops = call.operators;
  const TensorView h = saved_.h.in(call.slot);
  const TensorView gate = saved_.gate.in(call.slot);
  const TensorView up = saved_.up.in(call.slot);
  const TensorView normed = call.workspace.normed;
  const TensorView activated = call.workspace.activated;

  ops.rms_norm(h, weights_.feed_forward_norm.weight, model_.rms_norm_eps, normed,
               saved_.inverse_rms_2.in(call.slot));
  ops.linear(normed, weights_.gate.weight, gate);
  ops.linear(normed, weights_.up.weight, up);
  ops.swiglu(gate, up, activated);
  ops.linear(activated, weights_.down.weight, output);
  drop(call, Branch::FeedForward, output);
  ops.add(h, output, output);
}

void TransformerBlock::backward(const ItemCall& call, TensorView output_gradient, TensorView input_gradient) {
  feed_forward_backward(call, output_gradient);
  attention_backward(call, input_gradient);
}

// From the gradient of the output to workspace.residual_gradient, that of h.
void TransformerBlock::feed_forward_backward(const ItemCall& call, TensorView output_gradient) {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  const TensorView h = saved_.h.in(call.slot);
  const TensorView gate = saved_.gate.in(call.slot);
  const TensorView up = saved_.up.in(call.slot);

  const TensorView down_gradient = drop_gradient(call, Branch::FeedForward, output_gradient);
  ops.swiglu(gate, up, space.activated);
  ops.linear_weight_gradient(down_gradient, space.activated, weights_.down.gradient);
  ops.linear_input_gradient(down_gradient, weights_.down.weight, space.activated_gradient, No);
  const TensorView gate_gradient = space.activated;  // its product is spent
  ops.swiglu_backward(gate, up, space.activated_gradient, gate_gradient, space.up_gradient);

  ops.rms_norm(h, weights_.feed_forward_norm.weight, model_.rms_norm_eps, space.normed, space.inverse_rms);
  ops.linear_weight_gradient(gate_gradient, space.normed, weights_.gate.gradient);
  ops.linear_weight_gradient(space.up_gradient, space.normed, weights_.up.gradient);
  ops.linear_input_gradient(gate_gradient, weights_.gate.weight, space.normed_gradient, No);
  ops.linear_input_gradient(space.up_gradient, weights_.up.weight, space.normed_gradient, Yes);
  ops.rms_norm_backward(h, weights_.feed_forward_norm.weight, saved_.inverse_rms_2.in(call.slot),
                        space.normed_gradient, space.residual_gradient, weights_.feed_forward_norm.gradient);
  ops.add(output_gradient, space.residual_gradient, space.residual_gradient);
}

// From workspace.residual_gradient to the gradient of x.
void TransformerBlock::attention_backward(const ItemCall& call, TensorView input_gradient) {
  Operators& ops = call.operators;
  const Workspace& space = call.workspace;
  const TensorView x = saved_.x.in(call.slot);
  const TensorView attended = saved_.attended.in(call.slot);

  const TensorView projected_gradient = drop_gradient(call, Branch::Attention, space.residual_gradient);
  ops.linear_weight_gradient(projected_gradient, attended, weights_.attention_output.gradient);
  ops.linear_input_gradient(projected_gradient, weights_.attention_output.weight, space.attended_gradient,
                            No);
  const QueryAndKey heads = attention_inputs(call);
  ops.attention_backward(shape_, heads.query, heads.key, saved_.value.in(call.slot), attended,
                         saved_.log_sum_exp.in(call.slot), space.attended_gradient, space.query_gradient,
                         space.key_gradient, space.value_gradient, call.document_starts);
  ops.rope_backward(space.query_gradient, sequence_length_, model_.head_size(), model_.rope_theta);
  ops.rope_backward(space.key_gradient, sequence_length_, model_.head_size(), model_.rope_theta);

  const auto [query_gradient, key_gradient] = norm_heads_backward(call);

  ops.rms_norm(x, weights_.attention_norm.weight, model_.rms_norm_eps, space.normed, space.inverse_rms);
  ops.linear_weight_gradient(query_gradient, space.normed, weights_.query.gradient);
  ops.linear_weight_gradient(key_gradient, space.normed, weights_.key.gradient);
  ops.linear_weight_gradient(space.value_gradient, space.normed, weights_.value.gradient);
  ops.linear_input_gradient(query_gradient, weights_.query.weight, space.normed_gradient, No);
  ops.linear_input_gradient(key_gradient, weights_.key.weight, space.normed_gradient, Yes);
  ops.linear_input_gradient(space.value_gradient, weights_.value.weight, space.normed_gradient, Yes);
  ops.rms_norm_backward(x, weights_.attention_norm.weight, saved_.inverse_rms_1.in(call.slot),
                        space.normed_gradient, input_gradient, weights_.attention_norm.gradient);
  ops.add(space.residual_gradient, input_gradient, input_gradient);
}

}  // namespace penstock::worker
