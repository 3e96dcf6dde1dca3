#include "plan/cost/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/schedule/payload_slots.h"
#include "plan/schedule/recomputation_slots.h"
#include "plan/schedule/weight_versions.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

constexpr int64_t kWideBytes = 4;  // float32, and int32 tokens
constexpr int64_t kMomentsOfAdamW = 2;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

int64_t plus(int64_t a, int64_t b) {
  return a > kMost - b ? kMost : a + b;
}
int64_t times(int64_t a, int64_t b) {
  return b != 0 && a > kMost / b ? kMost : a * b;
}

// Of activations, gradients of activations and packed weights.
int64_t narrow_bytes(const JobSpec& job) {
  return job.train.dtype == "bfloat16" ? 2 : 4;
}

int64_t rounded_up(int64_t count, int64_t multiple) {
  return plus(count, multiple - 1) / multiple * multiple;
}

int64_t tensor_bytes(int64_t elements, int64_t element_bytes = kWideBytes) {
  return rounded_up(times(elements, element_bytes), 64);
}

int64_t sum(std::initializer_list<int64_t> terms) {
  int64_t total = 0;
  for (const int64_t term : terms) total = plus(total, term);
  return total;
}

int64_t query_width(const ModelSpec& model) {
  return model.num_attention_heads * model.head_size();
}
int64_t projected_width(const ModelSpec& model) {
  return query_width(model) + 2 * model.num_key_value_heads * model.head_size();
}

// What routed experts save beside their payload.
int64_t expert_slot_bytes(const JobSpec& job) {
  const MoeSpec& moe = job.model.moe;
  const int64_t tokens = job.tokens_per_microbatch();
  const int64_t narrow = narrow_bytes(job);
  const int64_t choices = tensor_bytes(tokens * moe.num_experts_per_tok);
  const int64_t parts = job.expert_parts();
  const int64_t counts = job.parallel.expert > 1 ? tensor_bytes(parts * moe.num_experts) : 0;
  return sum({tensor_bytes(tokens * moe.num_experts), tensor_bytes(tokens), choices, choices, choices,
              tensor_bytes(parts * job.expert_rows()), tensor_bytes(parts * (moe.num_experts + 1)), counts,
              tensor_bytes(parts * job.local_expert_rows() * 2 * moe.moe_intermediate_size, narrow)});
}

int64_t residual_bytes(const JobSpec& job) {
  return tensor_bytes(job.tokens_per_microbatch() * job.model.hidden_size, narrow_bytes(job));
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
              model.has_experts(layer) ? expert_slot_bytes(job)
                                       : tensor_bytes(tokens * 2 * model.intermediate_size, narrow)});
}

// The inputs of a block's down products.
int64_t activated_elements(const JobSpec& job, LayerIndex layer) {
  const ModelSpec& model = job.model;
  return model.has_experts(layer)
             ? job.expert_parts() * job.local_expert_rows() * model.moe.moe_intermediate_size
             : job.tokens_per_microbatch() * model.intermediate_size;
}

// What W reads of its I and finds nowhere else in the slot.
int64_t split_backward_bytes(const JobSpec& job, const Item& item) {
  const int64_t residual = residual_bytes(job);
  switch (item.kind) {
    case ItemKind::Embedding:
      return residual;
    case ItemKind::Block:
      return sum({residual, residual, tensor_bytes(activated_elements(job, item.layer), narrow_bytes(job))});
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

// Both operands that the products of a weight [out, in] read; see the header.
int64_t packed_bytes(int64_t out, int64_t in, int64_t element_bytes) {
  const auto operand = [&](int64_t inner, int64_t columns) {
    return times(times(rounded_up(inner, 64 / element_bytes), rounded_up(columns, 64)), element_bytes);
  };
  return plus(operand(in, out), operand(out, in));
}

int64_t network_packed_bytes(int64_t hidden, int64_t intermediate, int64_t element_bytes) {
  return plus(packed_bytes(2 * intermediate, hidden, element_bytes),
              packed_bytes(hidden, intermediate, element_bytes));
}

int64_t feed_forward_packed_bytes(const JobSpec& job, LayerIndex layer) {
  const ModelSpec& model = job.model;
  if (!model.has_experts(layer)) {
    return network_packed_bytes(model.hidden_size, model.intermediate_size, narrow_bytes(job));
  }
  return times(model.moe.num_experts,
               network_packed_bytes(model.hidden_size, model.moe.moe_intermediate_size, narrow_bytes(job)));
}

int64_t item_packed_bytes(const JobSpec& job, const Item& item) {
  const ModelSpec& model = job.model;
  const int64_t narrow = narrow_bytes(job);
  switch (item.kind) {
    case ItemKind::Embedding:
      return 0;
    case ItemKind::Block:
      return sum({packed_bytes(projected_width(model), model.hidden_size, narrow),
                  packed_bytes(model.hidden_size, query_width(model), narrow),
                  feed_forward_packed_bytes(job, item.layer)});
    case ItemKind::Head:
      return packed_bytes(model.vocab_size, model.hidden_size, narrow);
  }
  return 0;
}

int64_t packed_bytes_of(const JobSpec& job, const std::vector<Item>& items) {
  int64_t bytes = 0;
  for (const Item& item : items) bytes = plus(bytes, item_packed_bytes(job, item));
  return bytes;
}

int64_t owned_bytes(const ModelSpec& model, const std::vector<Item>& items) {
  int64_t bytes = 0;
  for (const ParameterSpec& parameter : parameters_of(model, items)) {
    bytes = plus(bytes, tensor_bytes(parameter.elements()));
  }
  return bytes;
}

// What is held of versions before the newest, which is among the other kinds.
int64_t older_versions_bytes(const JobSpec& job, const std::vector<Item>& items, const RankProgram& program) {
  const WeightVersionsHeld held = weight_versions_held(program);
  int64_t of_all = packed_bytes_of(job, items);
  int64_t of_forwards = 0;
  for (const ParameterSpec& parameter : parameters_of(job.model, items)) {
    const int64_t bytes = tensor_bytes(parameter.elements());
    if (parameter.packed) continue;
    int64_t& kind = parameter.item.kind == ItemKind::Embedding ? of_forwards : of_all;
    kind = plus(kind, bytes);
  }
  return plus(times(of_all, held.by_all - 1), times(of_forwards, held.by_forwards - 1));
}

int64_t payload_bytes_of(const JobSpec& job, const std::vector<Item>& items, const RankProgram& program,
                         StageIndex stage) {
  const PayloadHighWater high = payload_high_water(program, stage);
  int64_t bytes = 0;
  for (const Item& item : items) {
    const int inputs = job.recomputes(item.layer) ? high.recomputed_inputs : high.inputs;
    const int slots = inputs + (job.parallel.expert > 1 ? high.output_gradients : 0);
    bytes = plus(bytes, times(payload_slot_bytes(job, item), slots));
  }
  return bytes;
}

// The matrix that a tied head uses; 0 where these items have no tied head.
int64_t tied_matrix_bytes(const ModelSpec& model, const std::vector<Item>& items) {
  return holds_tied_head(model, items) ? tensor_bytes(model.vocab_size * model.hidden_size) : 0;
}

bool holds_embedding(const std::vector<Item>& items) {
  return std::any_of(items.begin(), items.end(),
                     [](const Item& item) { return item.kind == ItemKind::Embedding; });
}

// Slots of boundary tensors that this rank holds for a link.
int64_t slots_here(const Link& link, RankIndex rank) {
  int64_t slots = 0;
  if (link.target == rank) slots += link.receive_slots;  // of a link to itself: hand-offs
  if (link.source == rank) slots += link.send_slots;
  return slots;
}

std::string described(const MemoryPrediction& prediction) {
  std::string text;
  for (const auto& [kind, bytes] : prediction.by_kind()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, bytes);
  }
  return text;
}

}  // namespace

int64_t MemoryPrediction::total() const {
  return sum({parameters, packed, weight_versions, gradients, optimizer, rollback, snapshot, activations,
              payload, boundary});
}

std::vector<std::pair<std::string, int64_t>> MemoryPrediction::by_kind() const {
  std::vector<std::pair<std::string, int64_t>> kinds = {
      {"parameters", parameters}, {"packed", packed},           {"gradients", gradients},
      {"optimizer", optimizer},   {"activations", activations}, {"boundary", boundary}};
  if (payload > 0) kinds.push_back({"payload", payload});
  if (snapshot > 0) kinds.insert(kinds.begin() + 4, {"snapshot", snapshot});
  if (rollback > 0) kinds.insert(kinds.begin() + 4, {"rollback", rollback});
  if (weight_versions > 0) kinds.insert(kinds.begin() + 2, {"weight_versions", weight_versions});
  return kinds;
}

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

int64_t payload_slot_bytes(const JobSpec& job, const Item& item) {
  if (item.kind != ItemKind::Block || !job.model.has_experts(item.layer)) return 0;
  return tensor_bytes(job.expert_parts() * job.local_expert_rows() * job.model.hidden_size,
                      narrow_bytes(job));
}

int64_t boundary_slot_bytes(const JobSpec& job) {
  return tensor_bytes(job.tokens_per_microbatch() * job.model.hidden_size, narrow_bytes(job));
}

StatusOr<MemoryPrediction> predict_memory(const JobSpec& job, const Split& split,
                                          const RankProgram& program) {
  MemoryPrediction prediction;
  std::vector<Item> owned;
  std::vector<Item> written;  // into checkpoints
  for (const StageBuffers& buffers : program.buffers) {
    const int32_t stage = buffers.stage.value;
    if (stage < 0 || static_cast<size_t>(stage) >= split.size() || buffers.activation_slots < 0) {
      return invalid_argument(
          "program of rank {}: expected stages 0 to {}, found stage {} with {} activation slots",
          program.rank.value, static_cast<int64_t>(split.size()) - 1, stage, buffers.activation_slots);
    }
    const std::vector<Item>& items = split[static_cast<size_t>(stage)];
    owned.insert(owned.end(), items.begin(), items.end());
    if (buffers.replica == 0) written.insert(written.end(), items.begin(), items.end());
    const int64_t slot = activation_slot_bytes(job, items, buffers.backward);
    prediction.activations =
        sum({prediction.activations, times(slot, buffers.activation_slots),
             times(recomputation_slot_bytes(job, items), recomputation_slots(program, buffers.stage))});
    prediction.payload = plus(prediction.payload, payload_bytes_of(job, items, program, buffers.stage));
  }
  const int64_t owned_once = owned_bytes(job.model, owned);
  const int64_t tied = tied_matrix_bytes(job.model, owned);
  prediction.parameters = plus(owned_once, holds_embedding(owned) ? 0 : tied);
  prediction.packed = packed_bytes_of(job, owned);
  prediction.weight_versions = older_versions_bytes(job, owned, program);
  prediction.gradients = plus(owned_once, tied);
  prediction.optimizer = times(owned_once, kMomentsOfAdamW);
  const bool steps_provisionally =
      job.parallel.optimizer_step == "post-validated" && program.rank.value + 1 < program.ranks;
  if (steps_provisionally) prediction.rollback = plus(owned_once, prediction.optimizer);
  if (job.checkpoint.every > 0)
    prediction.snapshot = times(owned_bytes(job.model, written), 1 + kMomentsOfAdamW);
  for (const Link& link : program.links) {
    const int64_t slots = std::max<int64_t>(slots_here(link, program.rank), 0);
    prediction.boundary = plus(prediction.boundary, times(boundary_slot_bytes(job), slots));
  }
  return prediction;
}

Status check_memory_budget(const JobSpec& job, const Split& split, std::span<const RankProgram> programs) {
  if (job.memory_budget_bytes == 0) return ok_status();
  RankIndex largest_rank;
  MemoryPrediction largest;
  for (const RankProgram& program : programs) {
    PENSTOCK_ASSIGN_OR_RETURN(const MemoryPrediction prediction, predict_memory(job, split, program));
    if (largest_rank.is_set() && prediction.total() <= largest.total()) continue;
    largest_rank = program.rank;
    largest = prediction;
  }
  if (largest.total() <= job.memory_budget_bytes) return ok_status();
  return invalid_argument(
      "{}: expected at most {} bytes on every rank, found {} on rank {} ({} too many): {}",
      place_of(job, "memory_budget"), job.memory_budget_bytes, largest.total(), largest_rank.value,
      largest.total() - job.memory_budget_bytes, described(largest));
}

}  // namespace penstock::plan
