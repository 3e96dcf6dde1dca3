#include "client/present/proposal.h"

#include <nlohmann/json.hpp>

#include "client/present/job_words.h"
#include "plan/render/table.h"
#include "plan/spec/split_source.h"

namespace penstock::client {
namespace {

using plan::Table;

const char* name_of(plan::SplitVerdict verdict) {
  switch (verdict) {
    case plan::SplitVerdict::Stay:
      return "stay";
    case plan::SplitVerdict::Move:
      return "move";
    case plan::SplitVerdict::Undo:
      return "undo";
  }
  return "";
}

const char* name_of(plan::MoveOutcomeSoFar outcome) {
  switch (outcome) {
    case plan::MoveOutcomeSoFar::Open:
      return "open";
    case plan::MoveOutcomeSoFar::Paid:
      return "paid";
    case plan::MoveOutcomeSoFar::Failed:
      return "failed";
  }
  return "";
}

std::string stage_table(const plan::Proposal& proposal) {
  using enum Table::Align;
  Table table({{"STAGE", Right},
               {"ITEMS NOW"},
               {"MEASURED", Right},
               {"MODEL", Right},
               {"ITEMS THEN"},
               {"PREDICTED", Right}});
  for (size_t stage = 0; stage < proposal.stages.size(); ++stage) {
    table.add_row({fmt::format("{}", stage), plan::items_text(proposal.now[stage]),
                   ms_text(proposal.stages[stage].measured_ms), ms_text(proposal.stages[stage].modelled_ms),
                   plan::items_text(proposal.best[stage]), ms_text(proposal.best_ms[stage])});
  }
  return table.text();
}

std::string oversized_text(const plan::Proposal& proposal) {
  if (!proposal.oversized) return "";
  std::vector<plan::Item> items;
  for (const auto& stage : proposal.now) items.insert(items.end(), stage.begin(), stage.end());
  return fmt::format("{} alone exceeds the ideal stage of {} by {:.0f} %: no split can help beyond that\n",
                     to_string(items.at(static_cast<size_t>(proposal.oversized->layer))),
                     ms_text(static_cast<double>(proposal.oversized->ideal_ns) / 1e6),
                     proposal.oversized->above_percent());
}

std::string answer_text(const plan::SplitDecision& decision) {
  const std::string answer = fmt::format("{}: {}\n", name_of(decision.verdict), decision.because);
  if (decision.verdict == plan::SplitVerdict::Stay) return answer;
  return answer + fmt::format("parallel.split: {}\n", plan::to_text(decision.split));
}

}  // namespace

std::string proposal_text(const plan::Proposal& proposal, const std::optional<plan::LastMove>& last_move) {
  std::string text = stage_table(proposal);
  text +=
      fmt::format("a step takes {}, {} by the model, which is off by {:.1f} %; {} predicted ({:+.1f} %)\n",
                  ms_text(1e3 * proposal.step_seconds), ms_text(1e3 * proposal.modelled_step_seconds),
                  100 * proposal.model_error, ms_text(1e3 * proposal.best_step_seconds),
                  100 * (proposal.best_step_seconds / proposal.step_seconds - 1));
  for (const std::string& note : proposal.notes) text += "note: " + note + "\n";
  text += oversized_text(proposal);
  if (last_move && last_move->outcome == plan::MoveOutcomeSoFar::Paid)
    text += fmt::format("the last move has paid: {}\n", last_move->because);
  return text + answer_text(plan::decide(proposal, last_move));
}

Json proposal_json(const std::string& job, const plan::Proposal& proposal,
                   const std::optional<plan::LastMove>& last_move) {
  Json stages = Json::array();
  for (const plan::StageFigures& stage : proposal.stages)
    stages.push_back({{"measured_ms", stage.measured_ms}, {"modelled_ms", stage.modelled_ms}});
  Json layers = Json::object();
  for (const auto& [type, times] : proposal.costs.types)
    layers[type] = {{"forward_ms", times.forward.fixed_ms}, {"backward_ms", times.backward.fixed_ms}};
  const plan::SplitDecision decision = plan::decide(proposal, last_move);
  const bool undone = decision.verdict == plan::SplitVerdict::Undo;
  Json json = {{"job", job},
               {"answer", name_of(decision.verdict)},
               {"because", decision.because},
               {"predicted_gain", proposal.answer.predicted_gain},
               {"model_error", proposal.model_error},
               {"step_seconds", proposal.step_seconds},
               {"modelled_step_seconds", proposal.modelled_step_seconds},
               {"best_step_seconds", proposal.best_step_seconds},
               {"stages", std::move(stages)},
               {"best_ms", proposal.best_ms},
               {"split", plan::to_text(undone ? decision.split : proposal.best)},
               {"layers", std::move(layers)},
               {"notes", proposal.notes}};
  if (last_move) {
    json["last_move"] = {{"outcome", name_of(last_move->outcome)},
                         {"because", last_move->because},
                         {"gain", last_move->gain},
                         {"predicted_gain", last_move->predicted_gain},
                         {"before", plan::to_text(last_move->before)}};
  }
  return json;
}

}  // namespace penstock::client
