#include "plan/interop/stage_costs.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace penstock::plan {
namespace {

using Json = nlohmann::json;

constexpr const char* kFields[] = {"forward", "input_gradient", "weight_gradient"};

StatusOr<Json> parse_list(const std::string& text) {
  try {
    Json json = Json::parse(text);
    if (json.is_object() && json.contains("stages")) json = Json(json["stages"]);
    if (json.is_array()) return json;
  } catch (const Json::exception& failure) {
    return invalid_argument("not JSON: {}", failure.what());
  }
  return invalid_argument("expected a list of stages, or an object with \"stages\"");
}

// The shortest decimal that reads back as the same number: what the file says, digit for digit.
StatusOr<std::string> number_text(const Json& stage, const char* field) {
  const auto found = stage.is_object() ? stage.find(field) : stage.end();
  if (found == stage.end()) return invalid_argument("missing");
  if (!found->is_number()) return invalid_argument("expected a number, found {}", found->type_name());
  std::string text = found->dump();
  PENSTOCK_RETURN_IF_ERROR(TickScale::for_numbers({&text, 1}).status());
  return text;
}

// Forward, input gradient and weight gradient of every stage, in turn.
StatusOr<std::vector<std::string>> read_numbers(const std::string& text, int stages) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json list, parse_list(text));
  if (list.size() != static_cast<size_t>(stages)) {
    return invalid_argument("stages: expected {} entries, one a stage, found {}", stages, list.size());
  }
  std::vector<std::string> numbers;
  for (size_t stage = 0; stage < list.size(); ++stage) {
    for (const char* field : kFields) {
      StatusOr<std::string> number = number_text(list[stage], field);
      if (!number.ok()) return with_context(number.status(), fmt::format("stages[{}].{}", stage, field));
      numbers.push_back(*std::move(number));
    }
  }
  return numbers;
}

}  // namespace

StatusOr<ScaledCosts> stage_costs_from_json(const std::string& text, const std::string& path, int stages,
                                            std::string_view latency) {
  StatusOr<std::vector<std::string>> numbers = read_numbers(text, stages);
  if (!numbers.ok()) return with_context(numbers.status(), path);
  numbers->emplace_back(latency);
  StatusOr<TickScale> scale = TickScale::for_numbers(*numbers);
  if (!scale.ok()) return with_context(scale.status(), "latency");  // the others have been read before

  std::vector<Ticks> ticks;
  for (const std::string& number : *numbers) {
    PENSTOCK_ASSIGN_OR_RETURN(ticks.emplace_back(), scale->to_ticks(number));
  }
  ScaledCosts result{*scale, {}};
  for (size_t i = 0; i + 2 < ticks.size(); i += 3) {
    result.costs.stages.push_back({ticks[i], ticks[i + 1], ticks[i + 2]});
  }
  result.costs.latency = ticks.back();
  return result;
}

}  // namespace penstock::plan
