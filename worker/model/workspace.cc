#include "worker/model/workspace.h"

#include "plan/spec/network_widths.h"
#include "worker/model/activation_type.h"
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
                        kernels::DataType element) {
    wanted.push_back({&tensor, layout.place(element, shape)});
  };
  const kernels::DataType type = activation_type(job);
  want(workspace.edge[0], {tokens, model.hidden_size}, type);
  want(workspace.edge[1], {tokens, model.hidden_size}, type);
  want(workspace.normed, {tokens, model.hidden_size}, type);
  want(workspace.normed_gradient, {tokens, model.hidden_size}, type);
  want(workspace.residual_gradient, {tokens, model.hidden_size}, type);
  want(workspace.activated, {tokens, plan::widest_intermediate_size(model)}, type);
  want(workspace.activated_gradient, {tokens, plan::widest_intermediate_size(model)}, type);
  want(workspace.attended_gradient, {tokens, query_width}, type);
  want(workspace.targets, {tokens}, kernels::DataType::Int32);
  if (model.hidden_dropout > 0) {
    for (kernels::TensorView& branch : workspace.branch_gradient) {
      want(branch, {tokens, model.hidden_size}, type);
    }
  }
  if (model.qk_norm) {
    want(workspace.query, {tokens, query_width}, type);
    want(workspace.key, {tokens, key_value_width}, type);
    const bool across = model.qk_norm_across_heads;
    const int64_t query_norms = across ? 1 : model.num_attention_heads;
    const int64_t key_norms = across ? 1 : model.num_key_value_heads;
    want(workspace.query_inverse_rms, {tokens * query_norms}, kernels::DataType::Float32);
    want(workspace.key_inverse_rms, {tokens * key_norms}, kernels::DataType::Float32);
  }
  if (model.moe.num_experts > 0) {
    const int64_t parts = job.expert_parts();
    const int64_t rows = parts * job.expert_rows();
    const int64_t rows_here = parts * job.local_expert_rows();
    want(workspace.expert_rows, {rows, model.hidden_size}, type);
    want(workspace.expert_payload_gradient, {rows, model.hidden_size}, type);
    want(workspace.expert_weighted, {rows_here, model.moe.moe_intermediate_size}, type);
    want(workspace.expert_row_weight, {rows}, kernels::DataType::Float32);
    want(workspace.expert_row_gradient, {rows}, kernels::DataType::Float32);
    want(workspace.choice_gradient, {tokens, model.moe.num_experts_per_tok}, kernels::DataType::Float32);
    if (job.parallel.expert > 1) {
      want(workspace.arrived_rows, {rows_here, model.hidden_size}, type);
      want(workspace.arrived_values, {rows_here}, kernels::DataType::Float32);
      want(workspace.arrival_row, {rows_here}, kernels::DataType::Int32);
      want(workspace.arrival_source, {rows_here}, kernels::DataType::Int32);
      want(workspace.arrival_offsets, {parts * (job.local_experts() + 1)}, kernels::DataType::Int32);
      want(workspace.rows_here, {rows_here / parts, model.hidden_size}, type);
      want(workspace.row_weight_here, {rows_here / parts}, kernels::DataType::Float32);
      want(workspace.row_gradient_here, {rows_here / parts}, kernels::DataType::Float32);
    }
  }
  if (job.data.end_of_document >= 0) {
    want(workspace.document_starts, {tokens}, kernels::DataType::Int32);
  }

  PENSTOCK_ASSIGN_OR_RETURN(workspace.slab_, kernels::Slab::allocate(layout.bytes(), "workspace"));
  for (const Wanted& each : wanted) *each.tensor = each.place.in(workspace.slab_.view().data);
  return workspace;
}

}  // namespace penstock::worker
