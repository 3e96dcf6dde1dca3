#include "client/present/proposal.h"

#include <nlohmann/json.hpp>

#include "client/present/job_words.h"
#include "plan/render/table.h"
#include "plan/spec/split_source.h"

namespace penstock::client {
namespace {

using plan::Table;

bool is_undone(const std::optional<plan::MoveCheck>& last_move) {
  return last_move && !last_move->answer.move;
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

std::string answer_text(const plan::Proposal& proposal, const std::optional<plan::MoveCheck>& last_move) {
  if (is_undone(last_move))
    return fmt::format("undo: {}\nparallel.split: {}\n", last_move->answer.because,
                       plan::to_text(last_move->before));
  if (!proposal.answer.move) return fmt::format("stay: {}\n", proposal.answer.because);
  return fmt::format("move: {}\nparallel.split: {}\n", proposal.answer.because, plan::to_text(proposal.best));
}

}  // namespace

std::string proposal_text(const plan::Proposal& proposal, const std::optional<plan::MoveCheck>& last_move) {
  std::string text = stage_table(proposal);
  text +=
      fmt::format("a step takes {}, {} by the model, which is off by {:.1f} %; {} predicted ({:+.1f} %)\n",
                  ms_text(1e3 * proposal.step_seconds), ms_text(1e3 * proposal.modelled_step_seconds),
                  100 * proposal.model_error, ms_text(1e3 * proposal.best_step_seconds),
                  100 * (proposal.best_step_seconds / proposal.step_seconds - 1));
  for (const std::string& note : proposal.notes) text += "note: " + note + "\n";
  text += oversized_text(proposal);
  if (last_move && last_move->answer.move)
    text += fmt::format("the last move has paid: {}\n", last_move->answer.because);
  return text + answer_text(proposal, last_move);
}

Json proposal_json(const std::string& job, const plan::Proposal& proposal,
                   const std::optional<plan::MoveCheck>& last_move) {
  Json stages = Json::array();
  for (const plan::StageFigures& stage : proposal.stages)
    stages.push_back({{"measured_ms", stage.measured_ms}, {"modelled_ms", stage.modelled_ms}});
  Json layers = Json::object();
  for (const auto& [type, times] : proposal.costs.types)
    layers[type] = {{"forward_ms", times.forward.fixed_ms}, {"backward_ms", times.backward.fixed_ms}};
  const bool undone = is_undone(last_move);
  Json json = {{"job", job},
               {"answer", undone                 ? "undo"
                          : proposal.answer.move ? "move"
                                                 : "stay"},
               {"because", undone ? last_move->answer.because : proposal.answer.because},
               {"predicted_gain", proposal.answer.predicted_gain},
               {"model_error", proposal.model_error},
               {"step_seconds", proposal.step_seconds},
               {"modelled_step_seconds", proposal.modelled_step_seconds},
               {"best_step_seconds", proposal.best_step_seconds},
               {"stages", std::move(stages)},
               {"best_ms", proposal.best_ms},
               {"split", plan::to_text(undone ? last_move->before : proposal.best)},
               {"layers", std::move(layers)},
               {"notes", proposal.notes}};
  if (last_move) {
    json["last_move"] = {{"because", last_move->answer.because},
                         {"gain", last_move->answer.predicted_gain},
                         {"before", plan::to_text(last_move->before)}};
  }
  return json;
}

}  // namespace penstock::client
