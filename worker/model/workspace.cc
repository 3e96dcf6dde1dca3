#include "worker/model/workspace.h"

#include "worker/model/layout.h"

namespace penstock::worker {

StatusOr<Workspace> Workspace::create(const plan::JobSpec& job) {
  const plan::ModelSpec& model = job.model;
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t query_width = model.num_attention_heads * model.head_size();
  const int64_t key_value_width = model.num_key_value_heads * model.head_size();

  Workspace workspace;
  struct Wanted {
    kernels::TensorView* tensor;
    Place place;
  };
  std::vector<Wanted> wanted;
  Layout layout;
  const auto want = [&](kernels::TensorView& tensor, std::initializer_list<int64_t> shape,
                        kernels::DataType type = kernels::DataType::Float32) {
    wanted.push_back({&tensor, layout.place(type, shape)});
  };
  want(workspace.edge[0], {tokens, model.hidden_size});
  want(workspace.edge[1], {tokens, model.hidden_size});
  want(workspace.normed, {tokens, model.hidden_size});
  want(workspace.normed_gradient, {tokens, model.hidden_size});
  want(workspace.residual_gradient, {tokens, model.hidden_size});
  want(workspace.activated, {tokens, model.intermediate_size});
  want(workspace.activated_gradient, {tokens, model.intermediate_size});
  want(workspace.up_gradient, {tokens, model.intermediate_size});
  want(workspace.attended_gradient, {tokens, query_width});
  want(workspace.query_gradient, {tokens, query_width});
  want(workspace.key_gradient, {tokens, key_value_width});
  want(workspace.value_gradient, {tokens, key_value_width});
  want(workspace.inverse_rms, {tokens});
  if (model.qk_norm) {
    want(workspace.query, {tokens, query_width});
    want(workspace.key, {tokens, key_value_width});
    want(workspace.query_inverse_rms, {tokens * model.num_attention_heads});
    want(workspace.key_inverse_rms, {tokens * model.num_key_value_heads});
  }
  if (job.data.end_of_document >= 0) {
    want(workspace.document_starts, {tokens}, kernels::DataType::Int32);
  }

  PENSTOCK_ASSIGN_OR_RETURN(workspace.slab_, kernels::Slab::allocate(layout.bytes(), "workspace"));
  for (const Wanted& each : wanted) *each.tensor = each.place.in(workspace.slab_.view().data);
  return workspace;
}

}  // namespace penstock::worker
