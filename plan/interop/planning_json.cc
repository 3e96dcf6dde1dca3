#include "plan/interop/planning_json.h"

#include <nlohmann/json.hpp>

namespace penstock::plan {
namespace {

using Json = nlohmann::ordered_json;

double in_ms(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e6;
}

Json item_json(const Item& item) {
  if (item.kind == ItemKind::Block) return item.layer.value;
  return to_string(item);
}

Json split_json(const Split& split) {
  Json stages = Json::array();
  for (const auto& items : split) {
    Json stage = Json::array();
    for (const Item& item : items) stage.push_back(item_json(item));
    stages.push_back(std::move(stage));
  }
  return stages;
}

Json step_json(const ModelSpec& model, const PlannedStep& step) {
  Json rank_ms = Json::array();
  for (const int64_t time : step.partition.rank_ns) rank_ms.push_back(in_ms(time));
  Json recomputed = Json::array();
  const std::vector<Item> items = model_items(model);
  for (const int layer : step.partition.recomputed)
    recomputed.push_back(item_json(items[static_cast<size_t>(layer)]));
  return {{"schedule", step.choice.schedule},
          {"stages_per_rank", step.choice.stages_per_rank},
          {"placement", step.placement == StagePlacement::V ? "v" : "loop"},
          {"step_ms", in_ms(step.step_ns)},
          {"bubble_fraction", step.bubble_fraction},
          {"slowest_ms", in_ms(step.partition.slowest_ns)},
          {"rank_ms", std::move(rank_ms)},
          {"peak_bytes", step.partition.rank_bytes},
          {"limit", step.limit},
          {"split", split_json(split_of(model, step.partition.boundaries))},
          {"recomputed", std::move(recomputed)},
          {"moved_layers", step.partition.moved_layers},
          {"exact", step.partition.exact}};
}

Json baselines_json(const ModelSpec& model, const PlanningAnswer& answer) {
  Json baselines = Json::object();
  for (const Baseline& baseline : answer.baselines) {
    baselines[baseline.name] =
        baseline.step ? step_json(model, *baseline.step) : Json{{"refused", baseline.why_not}};
  }
  return baselines;
}

Json sizes_json(const PlanningBasis& basis) {
  Json sizes = Json::array();
  for (const PlannedSize& size : basis.sizes) {
    sizes.push_back({{"microbatch_size", size.microbatch_size},
                     {"step_ms", in_ms(size.step.step_ns)},
                     {"schedule", size.step.choice.schedule},
                     {"stages_per_rank", size.step.choice.stages_per_rank},
                     {"bubble_fraction", size.step.bubble_fraction},
                     {"peak_bytes", size.step.partition.peak_bytes}});
  }
  return sizes;
}

}  // namespace

Split split_of(const ModelSpec& model, const std::vector<int>& boundaries) {
  const std::vector<Item> items = model_items(model);
  Split split;
  for (size_t stage = 0; stage + 1 < boundaries.size(); ++stage) {
    split.emplace_back(items.begin() + boundaries[stage], items.begin() + boundaries[stage + 1]);
  }
  return split;
}

std::vector<int> boundaries_of(const Split& split) {
  std::vector<int> boundaries = {0};
  for (const auto& items : split) boundaries.push_back(boundaries.back() + static_cast<int>(items.size()));
  return boundaries;
}

std::string planning_to_json(const ModelSpec& model, const PlanningRequest& request,
                             const PlanningAnswer& answer, const PlanningBasis& basis) {
  Json json;
  json["costs"] = {
      {"source", basis.costs}, {"error_percent", 100 * basis.error}, {"measured", basis.is_measured}};
  json["pipeline"] = request.ranks;
  json["microbatches"] = request.microbatches;
  json["microbatch_size"] = basis.microbatch_size;
  json["microbatch_sizes"] = sizes_json(basis);
  json["plans"] = Json::array();
  for (const PlannedStep& step : answer.plans) json["plans"].push_back(step_json(model, step));
  json["baselines"] = baselines_json(model, answer);
  json["curve"] = Json::array();
  for (const PlannedStep& step : answer.curve) {
    json["curve"].push_back({{"peak_bytes", step.partition.peak_bytes},
                             {"step_ms", in_ms(step.step_ns)},
                             {"slowest_ms", in_ms(step.partition.slowest_ns)},
                             {"schedule", step.choice.schedule},
                             {"stages_per_rank", step.choice.stages_per_rank}});
  }
  json["left_out"] = Json::array();
  for (const LeftOut& left_out : answer.left_out) {
    json["left_out"].push_back({{"schedule", left_out.choice.schedule},
                                {"stages_per_rank", left_out.choice.stages_per_rank},
                                {"reason", left_out.reason}});
  }
  if (answer.oversized) {
    json["oversized"] = {{"layer", request.layers[static_cast<size_t>(answer.oversized->layer)].name},
                         {"time_ms", in_ms(answer.oversized->time_ns)},
                         {"ideal_ms", in_ms(answer.oversized->ideal_ns)},
                         {"above_percent", answer.oversized->above_percent()}};
  }
  if (answer.missing_bytes) json["missing_bytes"] = *answer.missing_bytes;
  if (answer.smallest_budget) json["smallest_budget_bytes"] = *answer.smallest_budget;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace penstock::plan
