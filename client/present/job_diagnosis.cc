#include "client/present/job_diagnosis.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "client/present/job_words.h"
#include "plan/interop/stage_trace.h"
#include "plan/render/table.h"

namespace penstock::client {
namespace {

using plan::Diagnosis;
using plan::Table;

constexpr double kMoreRows = 1.05;  // as an imbalance of stages (plan/diagnosis/diagnose.h)

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
      row.push_back(ms_text(diagnosis.median_ms[stage][replica]));
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

// Its residual: what its stage and its replica do not explain.
double slowness_of(const Diagnosis& diagnosis) {
  return diagnosis
      .residual_factor[static_cast<size_t>(diagnosis.stage)][static_cast<size_t>(diagnosis.replica)];
}

std::string suspect_text(const JobDiagnosis& diagnosis) {
  if (!diagnosis.suspect) return "";
  const Suspect& suspect = *diagnosis.suspect;
  if (suspect.load > kMoreRows)
    return fmt::format(
        "that is worker {}, with rank {}, whose experts get {:.2f} times the rows of the mean rank: it is the router's doing as "
        "far as that goes; a larger model.moe.router_aux_loss_coef keeps experts even\n",
        suspect.worker, suspect.rank, suspect.load);
  return fmt::format(
      "that is worker {}, with rank {}: `penstock drain {}` keeps new ranks away from it; to plan with it, derate it to {:.2f} "
      "of the others' speed\n",
      suspect.worker, suspect.rank, suspect.worker, 1 / slowness_of(diagnosis.times));
}

std::string memory_text(const plan::MemoryBalance& memory) {
  if (memory.because.empty()) return "";
  return fmt::format("memory{}: {}\n{}", memory.imbalanced ? "-imbalance" : "", memory.because,
                     memory.advice.empty() ? "" : memory.advice + "\n");
}

std::string routing_text(const plan::RoutingJudgement& routing) {
  if (routing.because.empty()) return "";
  return fmt::format("routing{}: {}\n{}", routing.routing == plan::Routing::Drift ? "-drift" : "",
                     routing.because, routing.advice.empty() ? "" : routing.advice + "\n");
}

}  // namespace

std::string diagnosis_text(const std::string& name, const Diagnosis& diagnosis) {
  std::string text = table_text(diagnosis);
  text += fmt::format("{}{}: {}\n{}\n", name.empty() ? "" : name + ": ", plan::name_of(diagnosis.finding),
                      diagnosis.because, diagnosis.advice);
  if (!diagnosis.note.empty()) text += diagnosis.note + "\n";
  return text;
}

std::string diagnosis_text(const JobDiagnosis& diagnosis) {
  return diagnosis_text("", diagnosis.times) + suspect_text(diagnosis) + memory_text(diagnosis.memory) +
         routing_text(diagnosis.routing);
}

Json diagnosis_json(const JobDiagnosis& diagnosis) {
  Json json = Json::parse(plan::diagnoses_to_json({{"", diagnosis.times}}));
  if (diagnosis.suspect)
    json["suspect"] = {{"worker", diagnosis.suspect->worker},
                       {"rank", diagnosis.suspect->rank},
                       {"speed", 1 / slowness_of(diagnosis.times)},
                       {"load", diagnosis.suspect->load}};
  if (const plan::MemoryBalance& memory = diagnosis.memory; !memory.because.empty()) {
    json["memory"] = {{"imbalanced", memory.imbalanced},
                      {"fullest_rank", memory.fullest},
                      {"ratio_to_median", memory.ratio},
                      {"because", memory.because},
                      {"advice", memory.advice}};
  }
  if (const plan::RoutingJudgement& routing = diagnosis.routing; !routing.because.empty()) {
    json["routing"] = {{"verdict", plan::name_of(routing.routing)},
                       {"stage", routing.stage},
                       {"load", {routing.least_load, routing.most_load}},
                       {"stage_ms", {1e3 * routing.least_seconds, 1e3 * routing.most_seconds}},
                       {"correlation", routing.correlation},
                       {"because", routing.because},
                       {"advice", routing.advice}};
  }
  return json;
}

}  // namespace penstock::client
