#include "plan/diagnosis/diagnose.h"

#include <algorithm>
#include <utility>

#include "client/commands/commands.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/interop/stage_trace.h"
#include "plan/render/table.h"

namespace penstock::client {
namespace {

using plan::Diagnosis;
using plan::Table;

constexpr size_t kTraceFileBytesMax = size_t{64} << 20;

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

std::string factor_text(double factor) {
  return fmt::format("{:.3f}", factor);
}

std::string table_text(const Diagnosis& diagnosis) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{"STAGE", Right}, {"FACTOR", Right}, {"SPREAD", Right}};
  const size_t shown = std::min<size_t>(diagnosis.replica_factor.size(), 8);
  for (size_t replica = 0; replica < shown; ++replica)
    columns.push_back({fmt::format("REPLICA {}", replica), Right});
  Table table(columns);
  for (size_t stage = 0; stage < diagnosis.stage_factor.size(); ++stage) {
    std::vector<std::string> row = {fmt::format("{}", stage), factor_text(diagnosis.stage_factor[stage]),
                                    fmt::format("{:.1f} %", 100 * diagnosis.spread[stage])};
    for (size_t replica = 0; replica < shown; ++replica) {
      row.push_back(fmt::format("{:.4g}ms", diagnosis.median_ms[stage][replica]));
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

std::string diagnosis_text(const std::string& name, const Diagnosis& diagnosis) {
  std::string text = table_text(diagnosis);
  text += fmt::format("{}{}: {}\n{}\n", name.empty() ? "" : name + ": ", plan::name_of(diagnosis.finding),
                      diagnosis.because, diagnosis.advice);
  if (!diagnosis.note.empty()) text += diagnosis.note + "\n";
  return text;
}

}  // namespace

int diagnose(const DiagnoseOptions& options) {
  if (!options.job.empty()) return not_built_yet("penstock diagnose JOB");
  if (options.trace.empty())
    return report_error(invalid_argument("--trace: missing; a file of times by stage"));
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
