#include "plan/interop/stage_trace.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "plan/interop/internal/json_fields.h"

namespace penstock::plan {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr int kIndexMax = 4'096;
constexpr size_t kCellsMax = 1 << 18;  // stages x replicas
constexpr size_t kMicrobatchesMax = 1 << 20;

struct CellKey {
  int replica = 0;
  int stage = 0;
  bool forward = true;
};

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool take_index(std::string_view& text, int& index) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (failure != std::errc() || index < 0 || index >= kIndexMax) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// "dp0_stage3_F"
std::optional<CellKey> parse_key(std::string_view text) {
  CellKey key;
  if (!take(text, "dp") || !take_index(text, key.replica) || !take(text, "_stage") ||
      !take_index(text, key.stage)) {
    return std::nullopt;
  }
  key.forward = text == "_F";
  if (!key.forward && text != "_B") return std::nullopt;
  return key;
}

// All steps' microbatches, in the order of the steps' names, which is the same for forwards and backwards.
StatusOr<std::vector<double>> samples_of(const JsonObject& cell) {
  std::vector<double> samples;
  for (const auto& [step, list] : cell.json().items()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> times, cell.numbers(step.c_str(), kMicrobatchesMax));
    samples.insert(samples.end(), times.begin(), times.end());
  }
  return samples;
}

StatusOr<StageTrace> trace_of(const JsonObject& object) {
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject raw, object.object("raw_ms"));
  std::map<std::pair<int, int>, CellSamples> cells;  // stage, replica
  int stages = 0, replicas = 0;
  for (const auto& [name, json] : raw.json().items()) {
    const std::optional<CellKey> key = parse_key(name);
    if (!key) {
      return invalid_argument("{}: expected names as dp0_stage0_F, indices below {}, found {}",
                              object.path_of("raw_ms"), kIndexMax, shown_json(name));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const JsonObject cell, raw.object(name.c_str()));
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<double> samples, samples_of(cell));
    CellSamples& target = cells[{key->stage, key->replica}];
    (key->forward ? target.forward_ms : target.backward_ms) = std::move(samples);
    stages = std::max(stages, key->stage + 1);
    replicas = std::max(replicas, key->replica + 1);
  }
  if (static_cast<size_t>(stages) * static_cast<size_t>(replicas) != cells.size() ||
      cells.size() > kCellsMax) {
    return invalid_argument("{}: expected every stage in every replica, {} x {}, found {} of them",
                            object.path_of("raw_ms"), stages, replicas, cells.size());
  }
  StageTrace trace;
  trace.cells.resize(static_cast<size_t>(stages));
  for (auto& [place, samples] : cells)
    trace.cells[static_cast<size_t>(place.first)].push_back(std::move(samples));
  return trace;
}

StatusOr<NamedTraces> read_traces(const std::string& text) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, parse_strict_json(text, 16));
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::at(json, ""));
  NamedTraces traces;
  if (!root.has("traces")) {
    PENSTOCK_ASSIGN_OR_RETURN(StageTrace trace, trace_of(root));
    traces.emplace_back("", std::move(trace));
    return traces;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject named, root.object("traces"));
  for (const auto& [name, inner] : named.json().items()) {
    PENSTOCK_ASSIGN_OR_RETURN(const JsonObject object, named.object(name.c_str()));
    PENSTOCK_ASSIGN_OR_RETURN(StageTrace trace, trace_of(object));
    traces.emplace_back(name, std::move(trace));
  }
  if (traces.empty()) return invalid_argument("traces: expected at least one");
  return traces;
}

Ordered diagnosis_json(const Diagnosis& diagnosis) {
  Ordered json;
  json["verdict"] = name_of(diagnosis.finding);
  json["where"] = Ordered::object();
  if (diagnosis.stage >= 0) json["where"]["stage"] = diagnosis.stage;
  if (diagnosis.replica >= 0) json["where"]["replica"] = diagnosis.replica;
  json["because"] = diagnosis.because;
  json["advice"] = diagnosis.advice;
  if (!diagnosis.note.empty()) json["note"] = diagnosis.note;
  json["evidence"] = {{"stage_factor", diagnosis.stage_factor},
                      {"replica_factor", diagnosis.replica_factor},
                      {"residual_factor", diagnosis.residual_factor},
                      {"spread", diagnosis.spread},
                      {"forward_backward_correlation", diagnosis.forward_backward_correlation},
                      {"median_ms", diagnosis.median_ms}};
  return json;
}

}  // namespace

StatusOr<NamedTraces> stage_traces_from_json(const std::string& text, const std::string& path) {
  StatusOr<NamedTraces> traces = read_traces(text);
  if (!traces.ok()) return with_context(traces.status(), path);
  return traces;
}

std::string diagnoses_to_json(const std::vector<std::pair<std::string, Diagnosis>>& diagnoses) {
  Ordered json;
  if (diagnoses.size() == 1) {
    json = diagnosis_json(diagnoses[0].second);
  } else {
    for (const auto& [name, diagnosis] : diagnoses) json["traces"][name] = diagnosis_json(diagnosis);
  }
  return json.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace penstock::plan
