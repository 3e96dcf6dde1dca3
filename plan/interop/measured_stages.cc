#include "plan/interop/measured_stages.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "plan/interop/internal/json_fields.h"

namespace penstock::plan {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr size_t kTypesOfStageMax = 256;

StatusOr<LayerCounts> layers_of(const JsonObject& stage) {
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject layers, stage.object("layers"));
  if (layers.json().size() > kTypesOfStageMax) {
    return invalid_argument("{}: expected at most {} types, found {}", stage.path_of("layers"),
                            kTypesOfStageMax, layers.json().size());
  }
  LayerCounts counts;
  for (const auto& [type, count] : layers.json().items()) {
    if (!count.is_number_integer() || count < 0 || count > 1'000'000) {
      return invalid_argument("{}.{}: expected a count of 0 to 1000000, found {}", stage.path_of("layers"),
                              type, shown_json(count));
    }
    counts[type] = count.get<int>();
  }
  return counts;
}

Status read_tokens(const JsonObject& stage, std::optional<double>& tokens) {
  if (!stage.has("tokens")) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(tokens, stage.number("tokens"));
  return ok_status();
}

StatusOr<StageMeasurement> measurement_of(const JsonObject& object) {
  StageMeasurement stage;
  PENSTOCK_ASSIGN_OR_RETURN(stage.layers, layers_of(object));
  PENSTOCK_ASSIGN_OR_RETURN(stage.forward_ms, object.number("forward_ms"));
  PENSTOCK_ASSIGN_OR_RETURN(stage.backward_ms, object.number("backward_ms"));
  PENSTOCK_RETURN_IF_ERROR(read_tokens(object, stage.tokens));
  PENSTOCK_ASSIGN_OR_RETURN(stage.worker, object.text("worker", ""));
  return stage;
}

StatusOr<MeasuredStages> read_stages(const std::string& text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, parse_strict_json(text, 8));
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::at(json, ""));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JsonObject> stages, root.objects("stages", kMeasurementsMax));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JsonObject> predict,
                            root.objects("predict", kMeasurementsMax, false));
  MeasuredStages measured;
  for (const JsonObject& object : stages) {
    PENSTOCK_ASSIGN_OR_RETURN(measured.stages.emplace_back(), measurement_of(object));
  }
  for (const JsonObject& object : predict) {
    StageToPredict& stage = measured.predict.emplace_back();
    PENSTOCK_ASSIGN_OR_RETURN(stage.layers, layers_of(object));
    PENSTOCK_RETURN_IF_ERROR(read_tokens(object, stage.tokens));
  }
  return measured;
}

Ordered time_json(const LayerTime& time, bool by_tokens) {
  if (!by_tokens) return time.fixed_ms;
  return {{"fixed_ms", time.fixed_ms}, {"per_token_ms", time.per_token_ms}};
}

}  // namespace

StatusOr<MeasuredStages> measured_stages_from_json(const std::string& text, const std::string& path) {
  StatusOr<MeasuredStages> measured = read_stages(text);
  if (!measured.ok()) return with_context(measured.status(), path);
  return measured;
}

std::string fitted_to_json(const FittedTimes& fitted, const std::vector<StageTime>& predicted) {
  Ordered json;
  json["types"] = Ordered::object();
  for (const auto& [type, times] : fitted.types) {
    json["types"][type] = {{"forward_ms", time_json(times.forward, fitted.by_tokens)},
                           {"backward_ms", time_json(times.backward, fitted.by_tokens)}};
  }
  json["predicted"] = Ordered::array();
  for (const StageTime& stage : predicted) {
    json["predicted"].push_back({{"forward_ms", stage.forward_ms},
                                 {"backward_ms", stage.backward_ms},
                                 {"time_ms", stage.total_ms()}});
  }
  json["residual"] = {{"mean_percent", fitted.mean_error_percent},
                      {"max_percent", fitted.largest_error_percent},
                      {"percent", fitted.error_percent},
                      {"degrees_of_freedom", fitted.degrees_of_freedom}};
  json["worker_factor"] = fitted.worker_factors;
  return json.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace penstock::plan
