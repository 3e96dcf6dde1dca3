#include "worker/model/blocks/mlp.h"

#include <array>

#include "worker/model/activation_type.h"

namespace penstock::worker {

using kernels::Operators;
using kernels::TensorView;

Mlp::Saved::Saved(const plan::JobSpec& job, int64_t intermediate_size, plan::BackwardForm form,
                  Layout& layout)
    : intermediate_size(intermediate_size) {
  const int64_t tokens = job.tokens_per_microbatch();
  gate_up = layout.place(activation_type(job), {tokens, 2 * intermediate_size});
  if (form == plan::BackwardForm::Fused) return;
  activated = layout.place(activation_type(job), {tokens, intermediate_size});
}

Mlp::Mlp(LayerIndex layer, const std::string& name, const ParameterStore& parameters, const Saved& saved)
    : saved_(saved),
      gate_(parameters.of_layer(layer, name + ".gate_proj")),
      up_(parameters.of_layer(layer, name + ".up_proj")),
      down_(parameters.of_layer(layer, name + ".down_proj")) {}

// Gate and up are the columns of one matrix, one after the other.
TensorView Mlp::gate_of(TensorView gate_up) const {
  return gate_up.columns(0, saved_.intermediate_size);
}
TensorView Mlp::up_of(TensorView gate_up) const {
  return gate_up.columns(saved_.intermediate_size, saved_.intermediate_size);
}

// The workspace is made for the widest network of the model.
TensorView Mlp::in_workspace(TensorView widest) const {
  return {widest.data(), widest.type(), {widest.size(0), saved_.intermediate_size}};
}

// Of the backward.
TensorView Mlp::activated(const ItemCall& call) const {
  return saved_.activated.rank == 0 ? in_workspace(call.workspace.activated) : saved_.activated.in(call.slot);
}

Status Mlp::forward(const ItemCall& call, TensorView x, TensorView added, TensorView output) {
  Operators& ops = call.operators;
  const TensorView gate_up = saved_.gate_up.in(call.slot);
  ops.linear(x, gate_.packed.weight, gate_up);
  if (call.again) return ok_status();
  const TensorView activated = in_workspace(call.workspace.activated);
  ops.swiglu(gate_of(gate_up), up_of(gate_up), activated);
  ops.linear(activated, down_.packed.weight, output, added);
  return ok_status();
}

Status Mlp::input_gradient(const ItemCall& call, TensorView output_gradient, TensorView x_gradient) {
  Operators& ops = call.operators;
  const TensorView gate_up = saved_.gate_up.in(call.slot);
  const TensorView activated_gradient = in_workspace(call.workspace.activated_gradient);
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
