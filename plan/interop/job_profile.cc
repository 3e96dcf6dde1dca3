#include "plan/interop/job_profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/cost/memory.h"
#include "plan/interop/internal/json_fields.h"

namespace penstock::plan {
namespace {

// Blocks with experts have costs of their own where the file knows of such.
const char* type_of(const JsonObject& types, const ModelSpec& model, const Item& item) {
  constexpr const char* kWithExperts = "block with experts";
  switch (item.kind) {
    case ItemKind::Embedding:
      return "embedding";
    case ItemKind::Block:
      return model.has_experts(item.layer) && types.has(kWithExperts) ? kWithExperts : "block";
    case ItemKind::Head:
      return "head";
  }
  return "";
}

// A number, or a + b x tokens.
StatusOr<double> time_of(const JsonObject& type, const char* field, const JobSpec& job) {
  if (!type.has(field) || !type.json()[field].is_object()) return type.number(field);
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject time, type.object(field));
  PENSTOCK_ASSIGN_OR_RETURN(const double fixed, time.number("fixed_ms"));
  PENSTOCK_ASSIGN_OR_RETURN(const double per_token, time.number("per_token_ms"));
  return fixed + per_token * static_cast<double>(job.tokens_per_microbatch());
}

StatusOr<int64_t> nanoseconds_of(const JsonObject& type, const char* field, const JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const double ms, time_of(type, field, job));
  if (!(ms >= 0 && ms <= 1e9))
    return invalid_argument("{}: expected milliseconds, 0 or more, found {}", type.path_of(field), ms);
  return std::llround(ms * 1e6);
}

StatusOr<LayerCosts> costs_by_type(const JsonObject& root, const JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject types, root.object("types"));
  LayerCosts costs;
  for (const Item& item : model_items(job.model)) {
    PENSTOCK_ASSIGN_OR_RETURN(const JsonObject type, types.object(type_of(types, job.model, item)));
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t forward, nanoseconds_of(type, "forward_ms", job));
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t backward, nanoseconds_of(type, "backward_ms", job));
    LayerCost layer;
    layer.name = item.kind == ItemKind::Block ? "block." + to_string(item) : to_string(item);
    layer.keep.time_ns = forward + backward;
    costs.layers.push_back(std::move(layer));
    costs.forward_ns.push_back(forward);
  }
  return costs;
}

StatusOr<LayerCosts> costs_of(const std::string& text, const std::string& path, const JobSpec& job) {
  const StatusOr<Json> json = parse_strict_json(text, 8);
  if (!json.ok()) return with_context(json.status(), path);
  if (!json->is_object() || !json->contains("types")) return layer_costs_from_json(text, path);
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::at(*json, ""));
  StatusOr<LayerCosts> costs = costs_by_type(root, job);
  if (!costs.ok()) return with_context(costs.status(), path);
  return costs;
}

bool says_bytes(const LayerCosts& costs) {
  return std::any_of(costs.layers.begin(), costs.layers.end(), [](const LayerCost& layer) {
    return layer.keep.activation_bytes > 0 || layer.keep.static_bytes > 0;
  });
}

// What a rank would hold all the time that had this item alone.
StatusOr<int64_t> static_bytes_of(const JobSpec& job, const Item& item) {
  RankProgram alone;
  alone.rank = RankIndex(0);
  alone.buffers.emplace_back().stage = StageIndex(0);
  PENSTOCK_ASSIGN_OR_RETURN(const MemoryPrediction prediction, predict_memory(job, {{item}}, alone));
  return prediction.total() - prediction.activations - prediction.routes - prediction.workspace;
}

// Payload slots that hold something from one end of a whole backward to the other, whatever is in flight: rows of a block
// that runs again, gradients that come from other ranks.
int64_t slots_while_a_backward_runs(const JobSpec& job, const Item& item) {
  return (job.recomputes(item.layer) ? 1 : 0) + (job.parallel.expert > 1 ? 1 : 0);
}

// What a rank holds whatever its layers: what actions work in, with scratch for the widest block that the job recomputes,
// and boundary slots. Of a loop of stages there are four links, with four receive slots or two send slots each; a program
// that gets more to be free of deadlock holds more.
int64_t bytes_of_any_rank(const JobSpec& job) {
  constexpr int64_t kBoundarySlots = 2 * (4 + 2);
  return action_workspace_bytes(job) +
         recomputation_scratch_bytes(job, model_items(job.model), BackwardForm::Fused) +
         kBoundarySlots * boundary_slot_bytes(job);
}

// Every block may keep its input alone; its payload is then there while a microbatch runs.
void offer_recomputation(const JobSpec& job, LayerCosts& costs) {
  const std::vector<Item> items = model_items(job.model);
  if (items.size() > kRecomputeLayersMax) return;
  for (size_t i = 0; i < items.size(); ++i) {
    LayerCost& layer = costs.layers[i];
    if (items[i].kind != ItemKind::Block) continue;
    layer.recompute =
        LayerOption{.time_ns = layer.keep.time_ns + costs.forward_ns[i],
                    .activation_bytes = boundary_slot_bytes(job),
                    .static_bytes = layer.keep.static_bytes + payload_slot_bytes(job, items[i])};
  }
}

}  // namespace

LayerCosts layers_of(const JobSpec& job, const std::vector<ItemTime>& times) {
  const std::vector<Item> items = model_items(job.model);
  LayerCosts costs;
  for (size_t i = 0; i < items.size(); ++i) {
    LayerCost& layer = costs.layers.emplace_back();
    layer.name = items[i].kind == ItemKind::Block ? "block." + to_string(items[i]) : to_string(items[i]);
    layer.keep.time_ns = times[i].forward_ns + times[i].backward_ns;
    costs.forward_ns.push_back(times[i].forward_ns);
  }
  return costs;
}

Status predict_bytes(const JobSpec& job, LayerCosts& costs) {
  const std::vector<Item> items = model_items(job.model);
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t slot = activation_slot_bytes(job, {items[i]}, BackwardForm::Fused);
    const int64_t payload = payload_slot_bytes(job, items[i]);
    costs.layers[i].keep.activation_bytes = slot + (job.recomputes(items[i].layer) ? 0 : payload);
    costs.split_backward_bytes.push_back(activation_slot_bytes(job, {items[i]}, BackwardForm::Split) - slot);
    PENSTOCK_ASSIGN_OR_RETURN(costs.layers[i].keep.static_bytes, static_bytes_of(job, items[i]));
    costs.layers[i].keep.static_bytes += payload * slots_while_a_backward_runs(job, items[i]);
  }
  return ok_status();
}

StatusOr<LayerCosts> job_times_from_json(const std::string& text, const std::string& path,
                                         const JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(LayerCosts costs, costs_of(text, path, job));
  const size_t items = model_items(job.model).size();
  if (costs.layers.size() == items) return costs;
  return invalid_argument(
      "{}: layers: expected {}, the embedding, {} blocks and the head of this job, found {}", path, items,
      items - 2, costs.layers.size());
}

StatusOr<bool> times_follow_tokens(const std::string& text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, parse_strict_json(text, 8));
  if (!json.is_object() || !json.contains("types") || !json["types"].is_object()) return false;
  const Json& types = json["types"];
  return std::all_of(types.begin(), types.end(), [](const Json& type) {
    return type.is_object() && type.value("forward_ms", Json()).is_object() &&
           type.value("backward_ms", Json()).is_object();
  });
}

Status complete_bytes(const JobSpec& job, Recomputation recomputation, LayerCosts& costs) {
  if (says_bytes(costs)) return ok_status();
  JobSpec counted = job;
  if (recomputation == Recomputation::Planned) counted.recompute.clear();
  PENSTOCK_RETURN_IF_ERROR(predict_bytes(counted, costs));
  if (recomputation == Recomputation::Planned) {
    offer_recomputation(counted, costs);
    counted.recompute.resize(static_cast<size_t>(job.model.num_hidden_layers));
    std::iota(counted.recompute.begin(), counted.recompute.end(), 0);
  }
  costs.rank_bytes = bytes_of_any_rank(counted);
  return ok_status();
}

}  // namespace penstock::plan
