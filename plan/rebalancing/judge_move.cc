#include "plan/rebalancing/judge_move.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/rebalancing/split_model.h"

namespace penstock::plan {
namespace {

// The newest run of another split than the last one's, and all before it; empty: there is none.
std::vector<MeasuredRun> runs_before_move(const std::vector<MeasuredRun>& runs) {
  const auto has_another = [&](const MeasuredRun& run) { return run.split != runs.back().split; };
  const auto last = std::find_if(runs.rbegin(), runs.rend(), has_another);
  return {runs.begin(), last.base()};
}

StatusOr<double> promised_gain(const JobSpec& job, const std::vector<MeasuredRun>& before,
                               const Split& split) {
  PENSTOCK_ASSIGN_OR_RETURN(const LayerFit fitted, fit_runs(job, before));
  PENSTOCK_ASSIGN_OR_RETURN(const PlanningRequest request, split_request(job, fitted.times, before.back()));
  PENSTOCK_ASSIGN_OR_RETURN(const double then, simulated_seconds(request, before.back().split));
  PENSTOCK_ASSIGN_OR_RETURN(const double now, simulated_seconds(request, split));
  return 1 - now / then;
}

MoveAnswer outcome_of(const MeasuredRun& before, const MeasuredRun& after, double promised) {
  return should_keep({.before_step_seconds = step_seconds(before),
                      .after_step_seconds = step_seconds(after),
                      .predicted_gain = promised});
}

bool both_halves_undo(const MeasuredRun& before, const MeasuredRun& after, double promised) {
  const std::vector<MeasuredRun> halves = halves_of(after);
  return !halves.empty() && std::none_of(halves.begin(), halves.end(), [&](const MeasuredRun& half) {
    return outcome_of(before, half, promised).move;
  });
}

}  // namespace

StatusOr<std::optional<LastMove>> judge_last_move(const JobSpec& job, const std::vector<MeasuredRun>& runs,
                                                  int64_t samples_min) {
  PENSTOCK_RETURN_IF_ERROR(check_runs(job, runs));
  const std::vector<MeasuredRun> until_move = runs_before_move(runs);
  if (until_move.empty() || !differ_by_split_alone(until_move.back(), runs.back())) return std::nullopt;
  const MeasuredRun &before = until_move.back(), &after = runs.back();
  PENSTOCK_ASSIGN_OR_RETURN(const double promised, promised_gain(job, until_move, after.split));
  if (!(promised > 0)) return std::nullopt;
  const MoveAnswer kept = outcome_of(before, after, promised);
  LastMove move{before.split, MoveOutcomeSoFar::Open, kept.predicted_gain, promised, kept.because};
  const int64_t samples = samples_of(job, after);
  if (samples < samples_min) {
    move.because =
        fmt::format("the last move is judged by {} samples of a stage, {} are there", samples_min, samples);
  } else if (kept.move) {
    move.outcome = MoveOutcomeSoFar::Paid;
  } else if (both_halves_undo(before, after, promised)) {
    move.outcome = MoveOutcomeSoFar::Failed;
  } else {
    move.because =
        "the halves of the steps since the last move do not agree on what it brought: " + kept.because;
  }
  return move;
}

SplitDecision decide(const Proposal& proposal, const std::optional<LastMove>& last_move) {
  if (last_move && last_move->outcome == MoveOutcomeSoFar::Failed)
    return {SplitVerdict::Undo, last_move->before, last_move->because};
  if (last_move && last_move->outcome == MoveOutcomeSoFar::Open)
    return {SplitVerdict::Stay, proposal.now, last_move->because};
  if (!proposal.answer.move) return {SplitVerdict::Stay, proposal.now, proposal.answer.because};
  return {SplitVerdict::Move, proposal.best, proposal.answer.because};
}

}  // namespace penstock::plan
