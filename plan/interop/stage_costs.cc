#include "plan/interop/stage_costs.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace penstock::plan {
namespace {

using Json = nlohmann::json;

constexpr const char* kFields[] = {"forward", "input_gradient", "weight_gradient"};

// An object with a list of stages; the list alone is put into one.
StatusOr<Json> parse_costs(const std::string& text) {
  try {
    Json json = Json::parse(text);
    if (json.is_array()) json = Json{{"stages", json}};
    if (json.is_object() && json.contains("stages") && json["stages"].is_array()) return json;
  } catch (const Json::exception& failure) {
    return invalid_argument("not JSON: {}", failure.what());
  }
  return invalid_argument("expected a list of stages, or an object with \"stages\"");
}

// The shortest decimal that reads back as the same number: what the file says, digit for digit.
StatusOr<std::string> number_text(const Json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  if (found == object.end()) return not_found("missing");
  if (!found->is_number()) return invalid_argument("expected a number, found {}", found->type_name());
  std::string text = found->dump();
  PENSTOCK_RETURN_IF_ERROR(TickScale::for_numbers({&text, 1}).status());
  return text;
}

Status refused(const Status& status, const std::string& place) {
  return invalid_argument("{}: {}", place, message(status));
}

StatusOr<std::string> stage_number(const Json& list, size_t stage, const char* field) {
  StatusOr<std::string> number = number_text(list[stage], field);
  if (!number.ok()) return refused(number.status(), fmt::format("stages[{}].{}", stage, field));
  return number;
}

// "" where there is none; without an exponent.
StatusOr<std::string> optional_number(const Json& object, const char* field, const std::string& place) {
  const StatusOr<std::string> number = number_text(object, field);
  if (number.status().code() == StatusCode::kNotFound) return "";
  if (!number.ok()) return refused(number.status(), place + field);
  PENSTOCK_ASSIGN_OR_RETURN(const TickScale scale, TickScale::for_numbers({&*number, 1}));
  PENSTOCK_ASSIGN_OR_RETURN(const Ticks ticks, scale.to_ticks(*number));
  return scale.to_text(ticks);
}

StatusOr<CostNumbers::Stage> numbers_of_stage(const Json& list, size_t stage) {
  PENSTOCK_RETURN_IF_ERROR(stage_number(list, stage, kFields[0]).status());  // one without a forward is none
  const std::string place = fmt::format("stages[{}].", stage);
  CostNumbers::Stage numbers;
  PENSTOCK_ASSIGN_OR_RETURN(numbers.forward, optional_number(list[stage], kFields[0], place));
  PENSTOCK_ASSIGN_OR_RETURN(numbers.input_gradient, optional_number(list[stage], kFields[1], place));
  PENSTOCK_ASSIGN_OR_RETURN(numbers.weight_gradient, optional_number(list[stage], kFields[2], place));
  PENSTOCK_ASSIGN_OR_RETURN(numbers.backward, optional_number(list[stage], "backward", place));
  return numbers;
}

// Links pass more bytes than the numbers that TickScale takes.
StatusOr<std::string> bandwidth_text(const Json& costs) {
  const auto found = costs.find("bytes_per_second");
  if (found == costs.end()) return "";
  constexpr double kMost = 1e18;
  const double bytes = found->is_number() ? found->get<double>() : -1;
  if (bytes >= 1 && bytes <= kMost) return fmt::format("{}", static_cast<int64_t>(bytes));
  return invalid_argument("bytes_per_second: expected a number from 1 to 1e18, found {}", found->dump().substr(0, 40));
}

StatusOr<CostNumbers> read_all_numbers(const std::string& text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json costs, parse_costs(text));
  const Json& list = costs["stages"];
  CostNumbers numbers;
  PENSTOCK_ASSIGN_OR_RETURN(numbers.overlapped_pair, optional_number(costs, "overlapped_pair", ""));
  PENSTOCK_ASSIGN_OR_RETURN(numbers.latency, optional_number(costs, "latency", ""));
  PENSTOCK_ASSIGN_OR_RETURN(numbers.bytes_per_second, bandwidth_text(costs));
  for (size_t stage = 0; stage < list.size(); ++stage) {
    PENSTOCK_ASSIGN_OR_RETURN(numbers.stages.emplace_back(), numbers_of_stage(list, stage));
  }
  return numbers;
}

// Forward, input gradient and weight gradient of every stage, in turn.
StatusOr<std::vector<std::string>> read_numbers(const std::string& text, int stages) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json costs, parse_costs(text));
  const Json& list = costs["stages"];
  if (list.size() != static_cast<size_t>(stages)) {
    return invalid_argument("stages: expected {} entries, one a stage, found {}", stages, list.size());
  }
  std::vector<std::string> numbers;
  for (size_t stage = 0; stage < list.size(); ++stage) {
    for (const char* field : kFields) {
      PENSTOCK_ASSIGN_OR_RETURN(numbers.emplace_back(), stage_number(list, stage, field));
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

StatusOr<CostNumbers> cost_numbers_from_json(const std::string& text, const std::string& path) {
  const StatusOr<CostNumbers> numbers = read_all_numbers(text);
  return numbers.ok() ? numbers : with_context(numbers.status(), path);
}

}  // namespace penstock::plan
