#include "plan/interop/schedule_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace penstock::plan {
namespace {

using Json = nlohmann::ordered_json;

// A whole number stays one: 57, not 57.0.
Json in_unit(Ticks ticks, const TickScale& scale) {
  if (ticks % scale.ticks_per_unit() == 0) return ticks / scale.ticks_per_unit();
  return scale.to_number(ticks);
}

Json placement_json(const ComputeProgram& program) {
  Json placement = Json::array();
  for (const auto& ranks : program.placement) {
    Json entry = Json::array();
    for (const RankIndex rank : ranks) entry.push_back(rank.value);
    placement.push_back(std::move(entry));
  }
  return placement;
}

Json actions_json(const ComputeProgram& program) {
  Json actions = Json::array();
  for (const auto& list : program.actions) {
    Json row = Json::array();
    for (const Action& action : list) row.push_back(to_string(action));
    actions.push_back(std::move(row));
  }
  return actions;
}

const char* name_of(Timeline timeline) {
  switch (timeline) {
    case Timeline::Earliest:
      return "earliest";
    case Timeline::Aligned:
      return "aligned";
  }
  return "";
}

// Why each rank is idle, in the order of the ranks.
Json idle_json(const ScheduleReport& report) {
  Json idle = Json::array();
  for (const RankTimeline& rank : report.simulation.ranks) {
    const auto time = [&](Ticks ticks) { return in_unit(ticks, report.scale); };
    idle.push_back({{"warm_up", time(rank.idle_warm_up)},
                    {"cool_down", time(rank.idle_cool_down)},
                    {"dependency", time(rank.idle_dependency)},
                    {"transfer", time(rank.idle_transfer)}});
  }
  return idle;
}

void add_memory(const ScheduleReport& report, Json& json) {
  if (!report.memory) return;
  Json bytes = Json::array();
  Json fits = Json::array();
  for (const MemoryRow& row : report.memory->rows) {
    bytes.push_back(row.bytes);
    fits.push_back(row.fits);
  }
  json["predicted_bytes"] = std::move(bytes);
  if (!report.memory_assumptions->budget_bytes.empty()) json["fits"] = std::move(fits);
}

Json numbers_json(const std::vector<int64_t>& units, const TickScale& scale) {
  Json numbers = Json::array();
  for (const int64_t value : units) numbers.push_back(in_unit(value, scale));
  return numbers;
}

// What a search proves about the span of zero-bubble papers (max_stage_span).
Json search_json(const SearchResult& search, const TickScale& scale) {
  const SearchReport& found = search.report;
  return {{"max_stage_span", in_unit(found.max_stage_span, scale)},
          {"bound", in_unit(found.bound, scale)},
          {"bound_reason", found.bound_reason},
          {"optimal", found.optimal},
          {"gap_percent", found.gap_percent},
          {"evaluations", found.evaluations},
          {"memory_peaks", numbers_json(found.memory_peaks, search.memory_scale)},
          {"memory_limits", numbers_json(found.memory_limits, search.memory_scale)}};
}

// One field a line, the lists of actions one rank a line: for people and for line-based tools alike.
std::string one_field_a_line(const Json& object) {
  std::string text;
  for (const auto& [name, value] : object.items()) {
    text += (text.empty() ? "{\n  " : ",\n  ") + Json(name).dump() + ": ";
    const bool nested = (name == "actions" || name == "violations") && !value.empty();
    if (!nested) {
      text += value.dump(-1, ' ', false, Json::error_handler_t::replace);
      continue;
    }
    std::string rows;
    for (const Json& row : value) {
      rows +=
          (rows.empty() ? "\n    " : ",\n    ") + row.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    text += "[" + rows + "\n  ]";
  }
  return text + "\n}\n";
}

}  // namespace

std::string schedule_to_json(const ScheduleReport& report) {
  const ComputeProgram& program = report.program;
  const Simulation& simulation = report.simulation;
  const auto time = [&](Ticks ticks) { return in_unit(ticks, report.scale); };

  Json json;
  json["schedule"] = program.schedule;
  json["ranks"] = program.ranks;
  json["microbatches"] = program.microbatches;
  json["stages_per_rank"] = program.stages_per_rank;
  json["placement"] = placement_json(program);
  json["actions"] = actions_json(program);
  json["slots"] = report.slots;
  json["empty_slots"] = report.empty_slots;
  json["makespan"] = time(simulation.makespan);
  json["max_stage_span"] = time(simulation.max_stage_span);
  json["bubble_fraction"] = simulation.bubble_fraction;
  json["stage_bubble_rate"] = simulation.stage_bubble_rate;
  json["idle_total"] = time(simulation.idle_total);
  json["peak_activations"] = report.peak_activations;
  json["peak_activations_released_at_input_gradient"] = report.peak_activations_released_at_input_gradient;
  json["payload_slots"] = report.payload_slots;
  json["transfers"] = {{"forward", simulation.transfers_forward},
                       {"backward", simulation.transfers_backward}};
  json["handoffs"] = {{"local", simulation.handoffs.local},
                      {"hidden", simulation.handoffs.hidden},
                      {"exposed", simulation.handoffs.exposed}};
  json["loss_rank"] = report.loss_rank.value;
  json["timeline"] = name_of(simulation.timeline);
  json["bubble_to_busy"] = simulation.bubble_to_busy;
  json["idle"] = idle_json(report);
  add_memory(report, json);
  if (report.search) json["search"] = search_json(*report.search, report.scale);
  if (!program.note.empty()) json["note"] = program.note;
  // What the reader needs to get the same program back, where it is not the default.
  if (program.forward_only) json["forward_only"] = true;
  if (program.updates != 1) json["updates"] = program.updates;
  return one_field_a_line(json);
}

std::string verdict_to_json(const Verdict& verdict) {
  Json violations = Json::array();
  for (const Violation& violation : verdict.violations) {
    Json json;
    json["rule"] = violation.rule;
    json["rank"] = violation.rank.is_set() ? Json(violation.rank.value) : Json(nullptr);
    json["position"] = violation.position >= 0 ? Json(violation.position) : Json(nullptr);
    json["action"] = violation.action.empty() ? Json(nullptr) : Json(violation.action);
    json["message"] = violation.message;
    violations.push_back(std::move(json));
  }
  Json json;
  json["valid"] = verdict.valid();
  if (verdict.valid()) {
    json["bit_identical"] = verdict.bit_identical;
    json["payload_slots"] = verdict.high_water;
  }
  json["violations"] = std::move(violations);
  return one_field_a_line(json);
}

}  // namespace penstock::plan
