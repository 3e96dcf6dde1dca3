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

std::string factor_text(double factor) {
  return fmt::format("{:.3f}", factor);
}

std::string table_text(const Diagnosis& diagnosis) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{"STAGE", Right}, {"FACTOR", Right}};
  const bool several = diagnosis.stages_share_ranks;
  if (several) columns.push_back({"RANK'S FACTOR", Right});
  columns.push_back({"SPREAD", Right});
  const size_t shown = std::min<size_t>(diagnosis.replica_factor.size(), 8);
  for (size_t replica = 0; replica < shown; ++replica)
    columns.push_back({fmt::format("REPLICA {}", replica), Right});
  Table table(columns);
  for (size_t stage = 0; stage < diagnosis.stage_factor.size(); ++stage) {
    std::vector<std::string> row = {fmt::format("{}", stage), factor_text(diagnosis.stage_factor[stage])};
    if (several) row.push_back(factor_text(diagnosis.rank_factor[stage]));
    row.push_back(fmt::format("{:.1f} %", 100 * diagnosis.spread[stage]));
    for (size_t replica = 0; replica < shown; ++replica) {
      row.push_back(ms_text(diagnosis.median_ms[stage][replica]));
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

// What draining cannot mend is not drained.
Diagnosis with_advice_for_experts(const JobDiagnosis& diagnosis) {
  Diagnosis times = diagnosis.times;
  const auto is_explained = [](const Suspect& suspect) {
    return suspect.finding != plan::Finding::Straggler || is_explained_by_rows(suspect);
  };
  if (!std::all_of(diagnosis.suspects.begin(), diagnosis.suspects.end(), is_explained)) return times;
  for (plan::Judgement& verdict : times.verdicts) {
    if (verdict.finding == plan::Finding::Straggler && !diagnosis.suspects.empty())
      verdict.advice =
          "a larger model.moe.router_aux_loss_coef keeps experts even; do not drain workers, do not move layers";
  }
  return times;
}

std::string verdicts_text(const std::string& name, const Diagnosis& diagnosis,
                          const std::vector<Suspect>& suspects) {
  std::string text, before = name.empty() ? "" : name + ": ";
  for (const plan::Judgement& verdict : diagnosis.verdicts) {
    text += fmt::format("{}{}: {}\n{}\n", before, plan::name_of(verdict.finding), verdict.because,
                        verdict.advice);
    text += suspects_text(suspects, verdict.finding);
    before = "also ";
  }
  for (const std::string& note : diagnosis.notes) text += "note: " + note + "\n";
  return text;
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
  return table_text(diagnosis) + verdicts_text(name, diagnosis, {});
}

std::string diagnosis_text(const JobDiagnosis& diagnosis) {
  const Diagnosis times = with_advice_for_experts(diagnosis);
  return table_text(times) + verdicts_text("", times, diagnosis.suspects) + memory_text(diagnosis.memory) +
         routing_text(diagnosis.routing);
}

Json diagnosis_json(const JobDiagnosis& diagnosis) {
  Json json = Json::parse(plan::diagnoses_to_json({{"", with_advice_for_experts(diagnosis)}}));
  for (const Suspect& suspect : diagnosis.suspects)
    json["suspects"].push_back({{"verdict", plan::name_of(suspect.finding)},
                                {"worker", suspect.worker},
                                {"ranks", suspect.ranks},
                                {"healthy_ranks", suspect.healthy_ranks},
                                {"speed", 1 / suspect.factor},
                                {"load", suspect.load}});
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
