#include "plan/cost/slot_bytes.h"

#include <algorithm>

#include "plan/cost/internal/bytes.h"
#include "plan/spec/network_widths.h"

namespace penstock::plan {

using namespace internal;

namespace {

// What routed experts decide: probabilities, log-sum-exp, choices, their weights and rows, sources, offsets, and where
// ranks share experts out how many rows came for each.
int64_t expert_route_bytes(const JobSpec& job) {
  const MoeSpec& moe = job.model.moe;
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t choices = tensor_bytes(tokens * moe.num_experts_per_tok);
  const int64_t parts = job.expert_parts();
  const int64_t counts = job.parallel.expert > 1 ? tensor_bytes(parts * moe.num_experts) : 0;
  return sum({tensor_bytes(tokens * moe.num_experts), tensor_bytes(tokens), choices, choices, choices,
              tensor_bytes(parts * job.expert_rows()), tensor_bytes(parts * (moe.num_experts + 1)), counts});
}

// So many elements for each token.
int64_t narrow_rows_bytes(const JobSpec& job, int64_t width) {
  return tensor_bytes(job.tokens_per_microbatch() * width, narrow_bytes(job));
}

// Gate and up of a block's networks, and what routers decided.
int64_t feed_forward_bytes(const JobSpec& job, LayerIndex layer) {
  const ModelSpec& model = job.model;
  if (!model.has_experts(layer)) return narrow_rows_bytes(job, 2 * model.intermediate_size);
  return sum({expert_route_bytes(job), expert_gate_up_bytes(job),
              narrow_rows_bytes(job, 2 * shared_intermediate_size(model))});
}

int64_t residual_bytes(const JobSpec& job) {
  return narrow_rows_bytes(job, job.model.hidden_size);
}

// What a block keeps beside its input.
int64_t block_saved_bytes(const JobSpec& job, LayerIndex layer) {
  const ModelSpec& model = job.model;
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t narrow = narrow_bytes(job);
  const int64_t residual = residual_bytes(job);
  const int64_t inverse_rms = tensor_bytes(tokens);
  return sum({inverse_rms, tensor_bytes(tokens * projected_width(model), narrow),
              tensor_bytes(tokens * query_width(model), narrow),
              tensor_bytes(tokens * model.num_attention_heads), residual, inverse_rms,
              feed_forward_bytes(job, layer)});
}

// The inputs of a block's down products.
int64_t activated_bytes(const JobSpec& job, LayerIndex layer) {
  const ModelSpec& model = job.model;
  if (!model.has_experts(layer)) return narrow_rows_bytes(job, model.intermediate_size);
  const int64_t rows_here = job.expert_parts() * job.local_expert_rows();
  return plus(tensor_bytes(rows_here * model.moe.moe_intermediate_size, narrow_bytes(job)),
              narrow_rows_bytes(job, shared_intermediate_size(model)));
}

// What W reads of its I and finds nowhere else in the slot.
int64_t split_backward_bytes(const JobSpec& job, const Item& item) {
  const int64_t residual = residual_bytes(job);
  switch (item.kind) {
    case ItemKind::Embedding:
      return residual;
    case ItemKind::Block:
      return sum({residual, residual, activated_bytes(job, item.layer)});
    case ItemKind::Head:
      return 0;
  }
  return 0;
}

// All that an item's forward saves beside its input, and what W reads of I.
int64_t item_saved_bytes(const JobSpec& job, const Item& item, BackwardForm backward) {
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t of_halves = backward == BackwardForm::Split ? split_backward_bytes(job, item) : 0;
  switch (item.kind) {
    case ItemKind::Embedding:
      return plus(of_halves, tensor_bytes(tokens));
    case ItemKind::Block:
      return plus(of_halves, block_saved_bytes(job, item.layer));
    case ItemKind::Head:
      return sum({of_halves, tensor_bytes(tokens), residual_bytes(job)});
  }
  return 0;
}

bool is_recomputed(const JobSpec& job, const Item& item) {
  return item.kind == ItemKind::Block && job.recomputes(item.layer);
}

// Of an activation slot.
int64_t item_slot_bytes(const JobSpec& job, const Item& item, BackwardForm backward) {
  const int64_t input = item.kind == ItemKind::Embedding ? 0 : residual_bytes(job);
  return is_recomputed(job, item) ? input : plus(input, item_saved_bytes(job, item, backward));
}

// Of blocks that are recomputed, or of those that are not.
int64_t routes_of(const JobSpec& job, const std::vector<Item>& items, bool recomputed) {
  int64_t bytes = 0;
  for (const Item& item : items) {
    const bool routes = item.kind == ItemKind::Block && job.model.has_experts(item.layer);
    if (routes && is_recomputed(job, item) == recomputed) bytes = plus(bytes, expert_route_bytes(job));
  }
  return bytes;
}

// In experts: rows of the microbatch's tokens, and those that come to the experts of this rank.
int64_t expert_workspace_bytes(const JobSpec& job) {
  const ModelSpec& model = job.model;
  if (model.moe.num_experts == 0) return 0;
  const int64_t narrow = narrow_bytes(job);
  const int64_t parts = job.expert_parts();
  const int64_t rows = parts * job.expert_rows();
  const int64_t rows_here = parts * job.local_expert_rows();
  const int64_t own =
      sum({times(2, tensor_bytes(rows * model.hidden_size, narrow)),
           tensor_bytes(rows_here * model.moe.moe_intermediate_size, narrow), times(2, tensor_bytes(rows)),
           tensor_bytes(job.tokens_per_microbatch() * model.moe.num_experts_per_tok)});
  if (job.parallel.expert == 1) return own;
  return sum({own, tensor_bytes(rows_here * model.hidden_size, narrow), times(3, tensor_bytes(rows_here)),
              tensor_bytes(parts * (job.local_experts() + 1)),
              tensor_bytes(job.local_expert_rows() * model.hidden_size, narrow),
              times(2, tensor_bytes(job.local_expert_rows()))});
}

// Normed and rotated queries and keys, and what their norms divided by.
int64_t qk_norm_workspace_bytes(const JobSpec& job) {
  const ModelSpec& model = job.model;
  if (!model.qk_norm) return 0;
  const int64_t tokens = job.tokens_per_microbatch();
  const auto width = [&](int64_t heads) {
    return plus(tensor_bytes(tokens * heads * model.head_size(), narrow_bytes(job)),
                tensor_bytes(tokens * (model.qk_norm_across_heads ? 1 : heads)));
  };
  return plus(width(model.num_attention_heads), width(model.num_key_value_heads));
}

}  // namespace

int64_t activation_slot_bytes(const JobSpec& job, const std::vector<Item>& items, BackwardForm backward) {
  int64_t bytes = 0;
  for (const Item& item : items) bytes = plus(bytes, item_slot_bytes(job, item, backward));
  return bytes;
}

int64_t recomputation_slot_bytes(const JobSpec& job, const std::vector<Item>& items) {
  int64_t bytes = 0;
  for (const Item& item : items) {
    if (is_recomputed(job, item)) bytes = plus(bytes, item_saved_bytes(job, item, BackwardForm::Split));
  }
  return bytes;
}

int64_t route_slot_bytes(const JobSpec& job, const std::vector<Item>& items) {
  return routes_of(job, items, false);
}

int64_t recomputed_route_bytes(const JobSpec& job, const std::vector<Item>& items) {
  return routes_of(job, items, true);
}

int64_t recomputation_scratch_bytes(const JobSpec& job, const std::vector<Item>& items,
                                    BackwardForm backward) {
  int64_t widest = 0;
  for (const Item& item : items) {
    if (is_recomputed(job, item)) widest = std::max(widest, item_saved_bytes(job, item, backward));
  }
  return widest;
}

int64_t expert_gate_up_bytes(const JobSpec& job) {
  return tensor_bytes(job.expert_parts() * job.local_expert_rows() * 2 * job.model.moe.moe_intermediate_size,
                      narrow_bytes(job));
}

int64_t payload_slot_bytes(const JobSpec& job, const Item& item) {
  if (item.kind != ItemKind::Block || !job.model.has_experts(item.layer)) return 0;
  return tensor_bytes(job.expert_parts() * job.local_expert_rows() * job.model.hidden_size,
                      narrow_bytes(job));
}

int64_t boundary_slot_bytes(const JobSpec& job) {
  return tensor_bytes(job.tokens_per_microbatch() * job.model.hidden_size, narrow_bytes(job));
}

int64_t action_workspace_bytes(const JobSpec& job) {
  const ModelSpec& model = job.model;
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t narrow = narrow_bytes(job);
  const int64_t residuals = model.hidden_dropout > 0 ? 7 : 5;
  return sum({times(residuals, residual_bytes(job)),
              times(2, narrow_rows_bytes(job, widest_intermediate_size(model))),
              tensor_bytes(tokens * query_width(model), narrow), tensor_bytes(tokens),
              qk_norm_workspace_bytes(job), expert_workspace_bytes(job),
              job.data.end_of_document >= 0 ? tensor_bytes(tokens) : 0});
}

}  // namespace penstock::plan
