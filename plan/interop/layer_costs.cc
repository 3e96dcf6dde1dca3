#include "plan/interop/layer_costs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/interop/internal/json_fields.h"

namespace penstock::plan {
namespace {

using Ordered = nlohmann::ordered_json;

StatusOr<LayerOption> option_of(const JsonObject& object, int64_t static_bytes) {
  LayerOption option;
  PENSTOCK_ASSIGN_OR_RETURN(option.time_ns, object.nanoseconds("time_ms"));
  PENSTOCK_ASSIGN_OR_RETURN(option.activation_bytes, object.bytes("activation_bytes", 0));
  PENSTOCK_ASSIGN_OR_RETURN(option.static_bytes, object.bytes("static_bytes", static_bytes));
  return option;
}

StatusOr<LayerCost> layer_of(const JsonObject& object, size_t index) {
  LayerCost layer;
  PENSTOCK_ASSIGN_OR_RETURN(layer.name, object.text("name", fmt::format("{}", index)));
  PENSTOCK_ASSIGN_OR_RETURN(layer.keep, option_of(object, 0));
  if (!object.has("recompute")) return layer;
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject recompute, object.object("recompute"));
  PENSTOCK_ASSIGN_OR_RETURN(layer.recompute, option_of(recompute, layer.keep.static_bytes));
  return layer;
}

StatusOr<int64_t> forward_of(const JsonObject& object, int64_t time_ns) {
  if (!object.has("forward_ms")) return time_ns / 3;
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t forward, object.nanoseconds("forward_ms"));
  if (forward > time_ns)
    return invalid_argument("{}: expected no more than time_ms", object.path_of("forward_ms"));
  return forward;
}

Status read_speeds(const JsonObject& root, LayerCosts& costs) {
  if (!root.has("worker_speed") || root.json()["worker_speed"].is_null()) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> speeds, root.numbers("worker_speed", kLayersMax));
  for (const double speed : speeds) {
    if (!(speed >= 0.01 && speed <= 100))
      return invalid_argument("worker_speed: expected 0.01 to 100, found {}", speed);
    costs.rank_speed.push_back(std::llround(speed * kSpeedUnit));
  }
  return ok_status();
}

StatusOr<LayerCosts> read_costs(const std::string& text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, parse_strict_json(text, 8));
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::at(json, ""));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JsonObject> layers, root.objects("layers", kLayersMax));
  LayerCosts costs;
  for (const JsonObject& object : layers) {
    PENSTOCK_ASSIGN_OR_RETURN(LayerCost layer, layer_of(object, costs.layers.size()));
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t forward, forward_of(object, layer.keep.time_ns));
    costs.layers.push_back(std::move(layer));
    costs.forward_ns.push_back(forward);
  }
  PENSTOCK_RETURN_IF_ERROR(read_speeds(root, costs));
  return costs;
}

double in_ms(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e6;
}

Ordered list_in_ms(const std::vector<int64_t>& times) {
  Ordered list = Ordered::array();
  for (const int64_t time : times) list.push_back(in_ms(time));
  return list;
}

Ordered chunks_of(const Partition& plan) {
  Ordered chunks = Ordered::array();
  for (size_t stage = 0; stage + 1 < plan.boundaries.size(); ++stage) {
    chunks.push_back({plan.boundaries[stage], plan.boundaries[stage + 1]});
  }
  return chunks;
}

std::vector<int> recomputed_by_stage(const Partition& plan) {
  std::vector<int> counts(plan.boundaries.size() - 1);
  for (const int layer : plan.recomputed) {
    const auto stage =
        std::upper_bound(plan.boundaries.begin(), plan.boundaries.end(), layer) - plan.boundaries.begin() - 1;
    ++counts[static_cast<size_t>(stage)];
  }
  return counts;
}

}  // namespace

StatusOr<LayerCosts> layer_costs_from_json(const std::string& text, const std::string& path) {
  StatusOr<LayerCosts> costs = read_costs(text);
  if (!costs.ok()) return with_context(costs.status(), path);
  return costs;
}

std::string partition_to_json(const PartitionRequest& request, const PartitionAnswer& answer) {
  const Partition& plan = answer.plan;
  Ordered json;
  json["feasible"] = answer.feasible;
  if (answer.missing_bytes) json["missing_bytes"] = *answer.missing_bytes;
  if (answer.smallest_budget) json["smallest_budget_bytes"] = *answer.smallest_budget;
  json["pipeline"] = request.ranks;
  json["stages_per_rank"] = request.stages_per_rank;
  if (request.stages_per_rank == 1) {
    json["split"] = plan.boundaries;
  } else {
    json["placement"] = request.placement == StagePlacement::V ? "v" : "loop";
    json["chunks"] = chunks_of(plan);
  }
  json["stage_ms"] = list_in_ms(plan.stage_ns);
  json["rank_ms"] = list_in_ms(plan.rank_ns);
  json["slowest_ms"] = in_ms(plan.slowest_ns);
  json["peak_bytes"] = plan.rank_bytes;
  json["recomputed"] = recomputed_by_stage(plan);
  json["recomputed_layers"] = Ordered::array();
  for (const int layer : plan.recomputed) {
    json["recomputed_layers"].push_back(request.layers[static_cast<size_t>(layer)].name);
  }
  json["in_flight"] = request.in_flight;
  json["moved_layers"] = plan.moved_layers;
  json["exact"] = plan.exact;
  if (answer.oversized) {
    json["oversized"] = {{"layer", request.layers[static_cast<size_t>(answer.oversized->layer)].name},
                         {"time_ms", in_ms(answer.oversized->time_ns)},
                         {"ideal_ms", in_ms(answer.oversized->ideal_ns)},
                         {"above_percent", answer.oversized->above_percent()}};
  }
  return json.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace penstock::plan
