#include "plan/cost/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/cost/internal/bytes.h"
#include "plan/schedule/payload_slots.h"
#include "plan/schedule/recomputation_slots.h"
#include "plan/schedule/weight_versions.h"
#include "plan/spec/network_widths.h"
#include "plan/spec/parameters.h"
#include "plan/spec/state_share.h"

namespace penstock::plan {

using namespace internal;

namespace {

constexpr int64_t kMomentsOfAdamW = 2;
constexpr int64_t kExchangeBytes = int64_t{2} << 20;  // two messages of 1 MiB

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
  const auto of_network = [&](int64_t intermediate) {
    return network_packed_bytes(model.hidden_size, intermediate, narrow_bytes(job));
  };
  if (!model.has_experts(layer)) return of_network(model.intermediate_size);
  const int64_t shared = model.moe.num_shared_experts > 0 ? of_network(shared_intermediate_size(model)) : 0;
  return plus(times(job.local_experts(), of_network(model.moe.moe_intermediate_size)), shared);
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

// What all ranks with one program hold, wherever they stand; their parameters, which are as large on all of them.
struct Holdings {
  MemoryPrediction common;  // without optimizer, rollback and snapshot
  std::vector<ParameterSpec> parameters;
  std::vector<bool> is_written;  // beside them: in some checkpoint, on one of these ranks
  bool steps_provisionally = false;
};

int64_t bytes_of(const std::vector<ParameterSpec>& parameters) {
  int64_t bytes = 0;
  for (const ParameterSpec& parameter : parameters) bytes = plus(bytes, tensor_bytes(parameter.elements()));
  return bytes;
}

// What is held of versions before the newest, which is among the other kinds.
int64_t older_versions_bytes(const Holdings& holdings, const RankProgram& program) {
  const WeightVersionsHeld held = weight_versions_held(program);
  int64_t of_all = holdings.common.packed;
  int64_t of_forwards = 0;
  for (const ParameterSpec& parameter : holdings.parameters) {
    if (parameter.packed) continue;
    int64_t& kind = parameter.item.kind == ItemKind::Embedding ? of_forwards : of_all;
    kind = plus(kind, tensor_bytes(parameter.elements()));
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

int64_t boundary_bytes(const JobSpec& job, const RankProgram& program) {
  int64_t slots = 0;
  for (const Link& link : program.links) {
    slots = plus(slots, std::max<int64_t>(slots_here(link, program.rank), 0));
  }
  return times(boundary_slot_bytes(job), slots);
}

// Memory through which messages of gradients and weights pass between the steps.
int64_t exchange_bytes(const JobSpec& job, const std::vector<Item>& items, const RankProgram& program) {
  const bool replicated = std::any_of(program.buffers.begin(), program.buffers.end(),
                                      [](const StageBuffers& buffers) { return buffers.twin.is_set(); });
  int64_t exchanges = 0;
  if (job.parallel.pipelines() > 1) ++exchanges;                      // sums over the data group
  if (job.parallel.expert > 1 && job.parallel.data > 1) ++exchanges;  // of experts, over their replicas
  if (replicated) ++exchanges;                                        // over two replicas in a pipeline
  const bool tied = job.model.tie_word_embeddings;
  if (tied && holds_embedding(items) != holds_tied_head(job.model, items))
    ++exchanges;  // its other end is elsewhere
  return exchanges * kExchangeBytes;
}

std::string described(const MemoryPrediction& prediction) {
  std::string text;
  for (const auto& [kind, bytes] : prediction.by_kind()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, bytes);
  }
  return text;
}

// Adds what a stage's slots take, and widens the scratch that its recomputation works in.
void add_stage(const JobSpec& job, const std::vector<Item>& items, const StageBuffers& buffers,
               const RankProgram& program, MemoryPrediction& held, int64_t& scratch) {
  const int64_t slots = buffers.activation_slots;
  const int64_t recomputed = recomputation_slots(program, buffers.stage);
  const int64_t routes = route_slot_bytes(job, items), routes_again = recomputed_route_bytes(job, items);
  held.activations =
      sum({held.activations, times(activation_slot_bytes(job, items, buffers.backward) - routes, slots),
           times(recomputation_slot_bytes(job, items) - routes_again, recomputed)});
  held.routes = sum({held.routes, times(routes, slots), times(routes_again, recomputed)});
  held.payload = plus(held.payload, payload_bytes_of(job, items, program, buffers.stage));
  scratch = std::max(scratch, recomputation_scratch_bytes(job, items, buffers.backward));
}

StatusOr<Holdings> holdings_of(const JobSpec& job, const Split& split, const RankProgram& program,
                               const RankProgram* validation) {
  Holdings holdings;
  MemoryPrediction& held = holdings.common;
  std::vector<Item> items;
  std::vector<Item> written;
  int64_t scratch = 0;
  for (const StageBuffers& buffers : program.buffers) {
    const int32_t stage = buffers.stage.value;
    if (stage < 0 || static_cast<size_t>(stage) >= split.size() || buffers.activation_slots < 0) {
      return invalid_argument(
          "program of rank {}: expected stages 0 to {}, found stage {} with {} activation slots",
          program.rank.value, static_cast<int64_t>(split.size()) - 1, stage, buffers.activation_slots);
    }
    const std::vector<Item>& of_stage = split[static_cast<size_t>(stage)];
    items.insert(items.end(), of_stage.begin(), of_stage.end());
    if (buffers.replica == 0) written.insert(written.end(), of_stage.begin(), of_stage.end());
    add_stage(job, of_stage, buffers, program, held, scratch);
  }
  // Every share of the experts is as large as the first.
  holdings.parameters = parameters_of(job.model, items, experts_at(job, {}));
  for (const ParameterSpec& parameter : holdings.parameters) {
    holdings.is_written.push_back(std::find(written.begin(), written.end(), parameter.item) != written.end());
  }
  const int64_t owned = bytes_of(holdings.parameters);
  const int64_t tied = tied_matrix_bytes(job.model, items);
  held.parameters = plus(owned, holds_embedding(items) ? 0 : tied);
  held.packed = packed_bytes_of(job, items);
  held.weight_versions = older_versions_bytes(holdings, program);
  held.gradients = plus(owned, tied);
  held.boundary =
      plus(boundary_bytes(job, program), validation == nullptr ? 0 : boundary_bytes(job, *validation));
  held.workspace = sum({action_workspace_bytes(job), scratch, exchange_bytes(job, items, program)});
  holdings.steps_provisionally =
      job.parallel.optimizer_step == "post-validated" && program.rank.value + 1 < program.ranks;
  return holdings;
}

MemoryPrediction held_at(const JobSpec& job, const Holdings& holdings, const RankPlace& place) {
  MemoryPrediction held = holdings.common;
  const std::vector<StateShare> shares = state_shares(job, place, holdings.parameters);
  for (size_t i = 0; i < shares.size(); ++i) {
    const int64_t weight = tensor_bytes(holdings.parameters[i].elements());
    const int64_t moments = times(kMomentsOfAdamW, weight);
    if (shares[i].has_moments) held.optimizer = plus(held.optimizer, moments);
    if (job.checkpoint.every == 0 || !holdings.is_written[i]) continue;
    if (shares[i].writes_weight) held.snapshot = plus(held.snapshot, weight);
    if (shares[i].writes_moments) held.snapshot = plus(held.snapshot, moments);
  }
  if (holdings.steps_provisionally) held.rollback = plus(bytes_of(holdings.parameters), held.optimizer);
  return held;
}

// Places whose ranks hold the same: who writes what, and with shared-out moments every pipeline by itself.
int likeness(const JobSpec& job, const RankPlace& place) {
  if (job.parallel.shard_optimizer) return place.pipeline;
  return (place.pipeline == 0 ? 2 : 0) + (place.data_rank == 0 ? 1 : 0);
}

}  // namespace

int64_t MemoryPrediction::total() const {
  return sum({parameters, packed, weight_versions, gradients, optimizer, rollback, snapshot, activations,
              routes, payload, boundary, workspace});
}

std::vector<std::pair<std::string, int64_t>> MemoryPrediction::by_kind() const {
  std::vector<std::pair<std::string, int64_t>> kinds = {
      {"parameters", parameters}, {"packed", packed},           {"weight_versions", weight_versions},
      {"gradients", gradients},   {"optimizer", optimizer},     {"rollback", rollback},
      {"snapshot", snapshot},     {"activations", activations}, {"routes", routes},
      {"payload", payload},       {"boundary", boundary},       {"workspace", workspace}};
  std::erase_if(kinds, [](const auto& kind) { return kind.second == 0; });
  return kinds;
}

StatusOr<MemoryPrediction> predict_memory(const JobSpec& job, const Split& split, const RankProgram& program,
                                          const MemoryOf& of) {
  PENSTOCK_ASSIGN_OR_RETURN(const Holdings holdings, holdings_of(job, split, program, of.validation));
  return held_at(job, holdings, of.place);
}

StatusOr<std::vector<MemoryPrediction>> predict_job_memory(const JobSpec& job, const Split& split,
                                                           std::span<const RankProgram> training,
                                                           std::span<const RankProgram> validation) {
  if (training.size() != static_cast<size_t>(job.parallel.pipeline)) {
    return invalid_argument("programs of {} ranks: expected {}, one for each rank of a pipeline",
                            training.size(), job.parallel.pipeline);
  }
  std::vector<MemoryPrediction> ranks(static_cast<size_t>(job.ranks()));
  for (size_t r = 0; r < training.size(); ++r) {
    const RankProgram* const pass = r < validation.size() ? &validation[r] : nullptr;
    PENSTOCK_ASSIGN_OR_RETURN(const Holdings holdings, holdings_of(job, split, training[r], pass));
    std::map<int, MemoryPrediction> alike;
    for (int pipeline = 0; pipeline < job.parallel.pipelines(); ++pipeline) {
      const RankIndex rank = rank_at(job.parallel, RankIndex(static_cast<int64_t>(r)), pipeline);
      const RankPlace place = place_of_rank(job.parallel, rank);
      const auto [known, is_new] = alike.try_emplace(likeness(job, place));
      if (is_new) known->second = held_at(job, holdings, place);
      ranks.at(static_cast<size_t>(rank.value)) = known->second;
    }
  }
  return ranks;
}

Status check_memory_budget(const JobSpec& job, std::span<const MemoryPrediction> ranks) {
  if (job.memory_budget_bytes == 0 || ranks.empty()) return ok_status();
  const auto largest = std::max_element(ranks.begin(), ranks.end(),
                                        [](const auto& a, const auto& b) { return a.total() < b.total(); });
  if (largest->total() <= job.memory_budget_bytes) return ok_status();
  return invalid_argument(
      "{}: expected at most {} bytes on every rank, found {} on rank {} ({} too many): {}",
      place_of(job, "memory_budget"), job.memory_budget_bytes, largest->total(), largest - ranks.begin(),
      largest->total() - job.memory_budget_bytes, described(*largest));
}

}  // namespace penstock::plan
