#include "plan/interop/stage_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
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

// Without zeros in front: "dp00" would be "dp0" again.
bool take_index(std::string_view& text, int& index) {
  if (text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9') return false;
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

using Steps = std::map<std::string, std::vector<double>>;  // microbatches of each

struct CellSteps {
  Steps forward, backward;
};
using Cells = std::map<std::pair<int, int>, CellSteps>;  // stage, replica

StatusOr<Steps> steps_of(const JsonObject& cell) {
  Steps steps;
  for (const auto& [step, list] : cell.json().items()) {
    PENSTOCK_ASSIGN_OR_RETURN(steps[step], cell.numbers(step.c_str(), kMicrobatchesMax));
  }
  return steps;
}

// Forwards and backwards of the same steps, so that those of one microbatch meet.
StatusOr<CellSamples> samples_of(const CellSteps& steps, int stage, int replica) {
  CellSamples samples;
  const auto counts = [&](const std::string& step, size_t forwards, size_t backwards) {
    return invalid_argument(
        "stage {} replica {}: expected as many forwards as backwards in every step, found {} and {} in step {}",
        stage, replica, forwards, backwards, shown_json(step));
  };
  for (const auto& [step, backwards] : steps.backward) {
    if (!steps.forward.contains(step)) return counts(step, 0, backwards.size());
  }
  for (const auto& [step, forwards] : steps.forward) {
    const auto backwards = steps.backward.find(step);
    const size_t count = backwards == steps.backward.end() ? 0 : backwards->second.size();
    if (count != forwards.size()) return counts(step, forwards.size(), count);
    if (count == 0) continue;
    samples.forward_ms.insert(samples.forward_ms.end(), forwards.begin(), forwards.end());
    samples.backward_ms.insert(samples.backward_ms.end(), backwards->second.begin(), backwards->second.end());
  }
  return samples;
}

StatusOr<Cells> cells_of(const JsonObject& object) {
  PENSTOCK_ASSIGN_OR_RETURN(const JsonObject raw, object.object("raw_ms"));
  Cells cells;
  for (const auto& [name, json] : raw.json().items()) {
    const std::optional<CellKey> key = parse_key(name);
    if (!key) {
      return invalid_argument("{}: expected names as dp0_stage0_F, indices below {}, found {}",
                              object.path_of("raw_ms"), kIndexMax, shown_json(name));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const JsonObject cell, raw.object(name.c_str()));
    CellSteps& cell_steps = cells[{key->stage, key->replica}];
    Steps& steps = key->forward ? cell_steps.forward : cell_steps.backward;
    PENSTOCK_ASSIGN_OR_RETURN(steps, steps_of(cell));
  }
  return cells;
}

// The cells of replicas on pipeline ranks, as a job has them: those of one place are neighbours.
StatusOr<std::vector<std::vector<int>>> ranks_of(const JsonObject& object, size_t stages, size_t replicas) {
  std::vector<std::vector<int>> ranks;
  if (!object.has("stage_ranks")) return ranks;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> of_stages, object.numbers("stage_ranks", kIndexMax));
  const auto is_rank = [](double rank) { return rank >= 0 && rank < kIndexMax && rank == std::floor(rank); };
  if (of_stages.size() != stages || !std::all_of(of_stages.begin(), of_stages.end(), is_rank)) {
    return invalid_argument("{}: expected the rank of each of {} stages, whole numbers from 0 to {}",
                            object.path_of("stage_ranks"), stages, kIndexMax - 1);
  }
  for (const double rank : of_stages) {
    std::vector<int>& of_stage = ranks.emplace_back();
    for (size_t replica = 0; replica < replicas; ++replica)
      of_stage.push_back(static_cast<int>(rank) * static_cast<int>(replicas) + static_cast<int>(replica));
  }
  return ranks;
}

StatusOr<StageTrace> trace_of(const JsonObject& object) {
  PENSTOCK_ASSIGN_OR_RETURN(const Cells cells, cells_of(object));
  int stages = 0, replicas = 0;
  for (const auto& [place, steps] : cells) {
    stages = std::max(stages, place.first + 1);
    replicas = std::max(replicas, place.second + 1);
  }
  if (static_cast<size_t>(stages) * static_cast<size_t>(replicas) != cells.size() ||
      cells.size() > kCellsMax) {
    return invalid_argument("{}: expected every stage in every replica, {} x {}, found {} of them",
                            object.path_of("raw_ms"), stages, replicas, cells.size());
  }
  StageTrace trace;
  trace.cells.resize(static_cast<size_t>(stages));
  for (const auto& [place, steps] : cells) {
    StatusOr<CellSamples> samples = samples_of(steps, place.first, place.second);
    if (!samples.ok()) return with_context(samples.status(), object.path_of("raw_ms"));
    trace.cells[static_cast<size_t>(place.first)].push_back(*std::move(samples));
  }
  PENSTOCK_ASSIGN_OR_RETURN(trace.ranks,
                            ranks_of(object, static_cast<size_t>(stages), static_cast<size_t>(replicas)));
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

Ordered where_json(const Judgement& verdict) {
  Ordered where = Ordered::object();
  if (!verdict.stages.empty()) where["stage"] = verdict.stages[0];
  if (verdict.stages.size() > 1) where["stages"] = verdict.stages;
  if (verdict.replica >= 0) where["replica"] = verdict.replica;
  return where;
}

Ordered verdict_json(const Judgement& verdict) {
  Ordered json;
  json["verdict"] = name_of(verdict.finding);
  json["where"] = where_json(verdict);
  json["factor"] = verdict.factor;
  json["gain"] = verdict.gain;
  json["because"] = verdict.because;
  json["advice"] = verdict.advice;
  for (const SlowWorker& worker : verdict.workers) {
    Ordered one = {{"stages", worker.stages}, {"replica", worker.replica}, {"factor", worker.factor}};
    if (worker.rank >= 0) one["rank"] = worker.rank;
    json["workers"].push_back(std::move(one));
  }
  return json;
}

Ordered diagnosis_json(const Diagnosis& diagnosis) {
  Ordered json = verdict_json(diagnosis.main());
  json["also"] = Ordered::array();
  for (size_t i = 1; i < diagnosis.verdicts.size(); ++i)
    json["also"].push_back(verdict_json(diagnosis.verdicts[i]));
  json["notes"] = diagnosis.notes;
  json["evidence"] = {{"stage_factor", diagnosis.stage_factor},
                      {"rank_factor", diagnosis.rank_factor},
                      {"replica_factor", diagnosis.replica_factor},
                      {"worker_factor", diagnosis.worker_factor},
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
