#include "worker/model/blocks/mlp.h"

#include <array>

#include "worker/model/activation_type.h"

namespace penstock::worker {

using kernels::Operators;
using kernels::TensorView;

Mlp::Saved::Saved(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout) {
  const int64_t tokens = job.tokens_per_microbatch();
  gate_up = layout.place(activation_type(job), {tokens, 2 * job.model.intermediate_size});
  if (form == plan::BackwardForm::Fused) return;
  activated = layout.place(activation_type(job), {tokens, job.model.intermediate_size});
}

Mlp::Mlp(const plan::JobSpec& job, LayerIndex layer, const ParameterStore& parameters, const Saved& saved)
    : saved_(saved),
      intermediate_(job.model.intermediate_size),
      gate_(parameters.of_layer(layer, "mlp.gate_proj")),
      up_(parameters.of_layer(layer, "mlp.up_proj")),
      down_(parameters.of_layer(layer, "mlp.down_proj")) {}

// Gate and up are the columns of one matrix, one after the other.
TensorView Mlp::gate_of(TensorView gate_up) const {
  return gate_up.columns(0, intermediate_);
}
TensorView Mlp::up_of(TensorView gate_up) const {
  return gate_up.columns(intermediate_, intermediate_);
}

// Of the backward.
TensorView Mlp::activated(const ItemCall& call) const {
  return saved_.activated.rank == 0 ? call.workspace.activated : saved_.activated.in(call.slot);
}

Status Mlp::forward(const ItemCall& call, TensorView x, TensorView added, TensorView output) {
  Operators& ops = call.operators;
  const TensorView gate_up = saved_.gate_up.in(call.slot);
  ops.linear(x, gate_.packed.weight, gate_up);
  if (call.again) return ok_status();
  ops.swiglu(gate_of(gate_up), up_of(gate_up), call.workspace.activated);
  ops.linear(call.workspace.activated, down_.packed.weight, output, added);
  return ok_status();
}

Status Mlp::input_gradient(const ItemCall& call, TensorView output_gradient, TensorView x_gradient) {
  Operators& ops = call.operators;
  const TensorView gate_up = saved_.gate_up.in(call.slot);
  const TensorView activated_gradient = call.workspace.activated_gradient;
  ops.linear_input_gradient(output_gradient, down_.packed.weight, activated_gradient);
  ops.swiglu_backward(gate_of(gate_up), up_of(gate_up), activated_gradient, gate_of(gate_up), up_of(gate_up),
                      activated(call));
  ops.linear_input_gradient(gate_up, gate_.packed.weight, x_gradient);
  return ok_status();
}

void Mlp::weight_gradient(const ItemCall& call, TensorView output_gradient, TensorView x) {
  Operators& ops = call.operators;
  ops.linear_weight_gradient(output_gradient, activated(call), {&down_.gradient, 1});
  ops.linear_weight_gradient(saved_.gate_up.in(call.slot), x, std::array{gate_.gradient, up_.gradient});
}

}  // namespace penstock::worker
