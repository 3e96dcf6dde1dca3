#include "plan/diagnosis/diagnose.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/measured_job.h"
#include "client/commands/terminal.h"
#include "client/present/expert_loads.h"
#include "client/present/job_diagnosis.h"
#include "client/present/job_words.h"
#include "client/present/suspects.h"
#include "plan/diagnosis/memory_balance.h"
#include "plan/interop/stage_trace.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/schedule/action.h"

namespace penstock::client {
namespace {

using plan::Diagnosis;

constexpr size_t kTraceFileBytesMax = size_t{64} << 20;

// Of one stage on one rank, by step and microbatch; the halves of a split backward together.
struct MicrobatchTimes {
  std::map<std::pair<int64_t, int>, double> forward_ms;
  std::map<std::pair<int64_t, int>, double> backward_ms;
};

void add_works(const v1::TraceResponse& trace, std::map<std::pair<int, int>, MicrobatchTimes>& times) {
  for (const v1::StepTrace& rank : trace.ranks()) {
    for (const v1::TracedWork& work : rank.works()) {
      MicrobatchTimes& of_stage = times[{work.stage(), rank.rank()}];
      const bool forward = work.kind() == static_cast<int>(plan::ActionKind::Forward);
      (forward ? of_stage.forward_ms : of_stage.backward_ms)[{trace.step(), work.microbatch()}] +=
          static_cast<double>(work.took_ns()) / 1e6;
    }
  }
}

// Microbatches whose forward and backward are both there.
plan::CellSamples cell_of(const MicrobatchTimes& times) {
  plan::CellSamples cell;
  for (const auto& [microbatch, forward] : times.forward_ms) {
    const auto backward = times.backward_ms.find(microbatch);
    if (backward == times.backward_ms.end()) continue;
    cell.forward_ms.push_back(forward);
    cell.backward_ms.push_back(backward->second);
  }
  return cell;
}

using NamedDiagnoses = std::vector<std::pair<std::string, Diagnosis>>;

StatusOr<NamedDiagnoses> diagnose_file(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(path, kTraceFileBytesMax));
  PENSTOCK_ASSIGN_OR_RETURN(const plan::NamedTraces traces, plan::stage_traces_from_json(text, path));
  NamedDiagnoses diagnoses;
  for (const auto& [name, trace] : traces) {
    StatusOr<Diagnosis> diagnosis = plan::diagnose(trace);
    if (!diagnosis.ok())
      return with_context(diagnosis.status(), name.empty() ? path : path + ": traces." + name);
    diagnoses.emplace_back(name, *std::move(diagnosis));
  }
  return diagnoses;
}

// Forwards and backwards of every stage, microbatch by microbatch, over the traced steps that are kept: what medians of
// steps hide. Nothing where none is kept.
std::optional<plan::StageTrace> traced_microbatches(Coordinator& coordinator, const MeasuredJob& measured) {
  const StatusOr<v1::TraceResponse> newest = coordinator.trace(measured.job.name(), std::nullopt);
  if (!newest.ok()) return std::nullopt;
  std::map<std::pair<int, int>, MicrobatchTimes> times;  // by stage and rank
  add_works(*newest, times);
  for (const int64_t step : newest->steps()) {
    if (step == newest->step()) continue;
    const StatusOr<v1::TraceResponse> trace = coordinator.trace(measured.job.name(), step);
    if (trace.ok()) add_works(*trace, times);
  }
  plan::StageTrace cells;
  for (const auto& stage : measured.runs.back().stages) {
    std::vector<plan::CellSamples>& of_stage = cells.cells.emplace_back();
    std::vector<int>& ranks = cells.ranks.emplace_back();
    for (const plan::StageSamples& rank : stage) {
      of_stage.push_back(cell_of(times[{static_cast<int>(cells.cells.size()) - 1, rank.rank}]));
      ranks.push_back(rank.rank);
    }
  }
  return cells;
}

// By medians of many steps; that the data vary shows in the microbatches of single ones.
StatusOr<Diagnosis> diagnosis_of(Coordinator& coordinator, const MeasuredJob& measured) {
  const std::optional<plan::StageTrace> microbatches = traced_microbatches(coordinator, measured);
  if (microbatches) {
    StatusOr<Diagnosis> of_microbatches = plan::diagnose(*microbatches);
    if (of_microbatches.ok() && plan::is_of_the_data(*of_microbatches)) return of_microbatches;
  }
  return plan::diagnose_run(measured.runs.back());
}

plan::MemoryBalance memory_of(const MeasuredJob& measured) {
  std::map<int, int64_t> peaks;  // by rank
  for (const v1::StageStatus& stage : measured.measurements.stages()) {
    if (stage.has_memory_peak_bytes()) peaks[stage.rank()] = stage.memory_peak_bytes();
  }
  std::vector<int64_t> bytes;
  for (const auto& [rank, peak] : peaks) bytes.push_back(peak);
  return plan::judge_memory(bytes, measured.spec.memory_budget_bytes);
}

int diagnose_job(const DiagnoseOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<MeasuredJob> measured = measured_job(**coordinator, options.job);
  if (!measured.ok()) return report_error(measured.status());
  StatusOr<Diagnosis> times = diagnosis_of(**coordinator, *measured);
  if (!times.ok()) return report_error(times.status());
  JobDiagnosis diagnosis{
      .times = *std::move(times),
      .suspects = {},
      .memory = memory_of(*measured),
      .routing = plan::judge_routing(routed_stages(*measured->measurements.attempts().rbegin()))};
  diagnosis.suspects = suspects_of(diagnosis.times, measured->spec, measured->measurements);
  print(options.output == "json" ? compact(diagnosis_json(diagnosis)) + "\n" : diagnosis_text(diagnosis));
  return kExitSucceeded;
}

}  // namespace

int diagnose(const DiagnoseOptions& options) {
  if (!options.job.empty() && options.trace.empty()) return diagnose_job(options);
  if (options.job.empty() == options.trace.empty())
    return report_error(invalid_argument("expected a job, or --trace with a file of times by stage, found {}",
                                         options.job.empty() ? "neither" : "both"));
  const StatusOr<NamedDiagnoses> diagnoses = diagnose_file(options.trace);
  if (!diagnoses.ok()) return report_error(diagnoses.status());
  if (options.output == "json") {
    print(plan::diagnoses_to_json(*diagnoses));
    return kExitSucceeded;
  }
  std::string text;
  for (const auto& [name, diagnosis] : *diagnoses)
    text += diagnosis_text(diagnoses->size() == 1 ? "" : name, diagnosis);
  print(text);
  return kExitSucceeded;
}

}  // namespace penstock::client
