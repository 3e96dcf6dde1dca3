#include "worker/model/blocks/embedding.h"

#include <algorithm>

#include "worker/model/activation_type.h"

namespace penstock::worker {

EmbeddingItem::Saved::Saved(const plan::JobSpec& job, plan::BackwardForm form, Layout& layout)
    : tokens(layout.place(kernels::DataType::Int32, {job.tokens_per_microbatch()})) {
  if (form == plan::BackwardForm::Fused) return;
  output_gradient = layout.place(activation_type(job), {job.tokens_per_microbatch(), job.model.hidden_size});
}

EmbeddingItem::EmbeddingItem(const plan::JobSpec& job, const ParameterStore& parameters, TokenSource& source,
                             plan::BackwardForm form, Layout& layout)
    : saved_(job, form, layout), table_(parameters.at("model.embed_tokens.weight")), source_(&source) {}

Status EmbeddingItem::forward(const ItemCall& call, kernels::TensorView output) {
  const kernels::TensorView tokens = saved_.tokens.in(call.slot);
  const std::span<int32_t> inputs(tokens.i32(), static_cast<size_t>(tokens.elements()));
  if (call.warm_up) {
    std::fill(inputs.begin(), inputs.end(), 0);
  } else {
    PENSTOCK_RETURN_IF_ERROR(source_->microbatch(call.step, call.microbatch_of_step, inputs, {}));
  }
  call.operators.embedding(tokens, table_.value, output);
  return ok_status();
}

Status EmbeddingItem::backward(const ItemCall& call, kernels::TensorView output_gradient,
                               kernels::TensorView) {
  add_gradient(call, output_gradient);
  return ok_status();
}

void EmbeddingItem::weight_gradient(const ItemCall& call) {
  add_gradient(call, saved_output_gradient(call.slot));
}

void EmbeddingItem::add_gradient(const ItemCall& call, kernels::TensorView output_gradient) const {
  call.operators.embedding_backward(saved_.tokens.in(call.slot), output_gradient, table_.gradient);
}

}  // namespace penstock::worker
