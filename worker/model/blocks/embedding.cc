#include "worker/model/blocks/embedding.h"

#include <algorithm>

namespace penstock::worker {

EmbeddingItem::Saved::Saved(const plan::JobSpec& job, Layout& layout)
    : tokens(layout.place(kernels::DataType::Int32, {job.tokens_per_microbatch()})) {}

EmbeddingItem::EmbeddingItem(const plan::JobSpec& job, const ParameterStore& parameters, TokenSource& source,
                             Layout& layout)
    : saved_(job, layout), table_(parameters.at("model.embed_tokens.weight")), source_(&source) {}

Status EmbeddingItem::forward(const ItemCall& call, kernels::TensorView output) {
  const kernels::TensorView tokens = saved_.tokens.in(call.slot);
  const std::span<int32_t> inputs(tokens.i32(), static_cast<size_t>(tokens.elements()));
  if (call.warm_up) {
    std::fill(inputs.begin(), inputs.end(), 0);
  } else {
    PENSTOCK_RETURN_IF_ERROR(source_->microbatch(call.step, call.microbatch, inputs, {}));
  }
  call.operators.embedding(tokens, table_.value, output);
  return ok_status();
}

void EmbeddingItem::backward(const ItemCall& call, kernels::TensorView output_gradient, kernels::TensorView) {
  call.operators.embedding_backward(saved_.tokens.in(call.slot), output_gradient, table_.gradient);
}

}  // namespace penstock::worker
