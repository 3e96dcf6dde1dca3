#include "coordinator/rebalancing/consider.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "coordinator/core/jobs/sample_window.h"
#include "plan/rebalancing/judge_move.h"
#include "plan/rebalancing/propose.h"
#include "plan/rebalancing/sampled_attempt.h"
#include "plan/spec/split_source.h"

namespace penstock::coordinator {
namespace {

using enum SplitAdvice;

SplitAnswer stay(std::string because) {
  return {.advice = Stay, .because = std::move(because)};
}

std::optional<plan::SampledWork> work_of(MeasuredKind kind) {
  switch (kind) {
    case MeasuredKind::Forward:
      return plan::SampledWork::Forward;
    case MeasuredKind::Backward:
      return plan::SampledWork::Backward;
    case MeasuredKind::InputGradient:
      return plan::SampledWork::InputGradient;
    case MeasuredKind::WeightGradient:
      return plan::SampledWork::WeightGradient;
    case MeasuredKind::Optimizer:
      return plan::SampledWork::Optimizer;
    case MeasuredKind::Step:
      return plan::SampledWork::Step;
    case MeasuredKind::LayerForward:
      return plan::SampledWork::LayerForward;
    case MeasuredKind::LayerBackward:
      return plan::SampledWork::LayerBackward;
    case MeasuredKind::Wait:
    case MeasuredKind::WaitDependency:
    case MeasuredKind::WaitTransfer:
      break;
  }
  return std::nullopt;
}

plan::SampledAttempt sampled(const AttemptMeasurements& measured) {
  plan::SampledAttempt attempt{.number = measured.attempt, .schedule = measured.schedule};
  for (const std::string& items : measured.stages) attempt.stages.push_back(split_on(items, ' '));
  for (const MeasuredSeries& series : measured.series) {
    const std::optional<plan::SampledWork> work = work_of(series.kind);
    if (!work) continue;
    attempt.series.push_back({.rank = static_cast<int>(series.rank.value),
                              .stage = series.stage.is_set() ? static_cast<int>(series.stage.value) : -1,
                              .work = *work,
                              .seconds = {series.seconds.begin(), series.seconds.end()},
                              .layer = series.layer});
  }
  return attempt;
}

plan::SampledRuns runs_of(const std::vector<AttemptMeasurements>& measured) {
  std::vector<plan::SampledAttempt> attempts;
  for (const AttemptMeasurements& attempt : measured) attempts.push_back(sampled(attempt));
  return plan::runs_of(attempts);
}

SplitAnswer not_measured_yet(const plan::SampledRuns& sampled) {
  const std::string left_out = plan::to_text(sampled.left_out);
  return stay("it has not been measured yet" + (left_out.empty() ? "" : "; left out: " + left_out));
}

// "embedding 0-3 | 4-7 head".
std::string stages_text(const plan::Split& split) {
  std::vector<std::string> stages;
  for (const std::vector<plan::Item>& items : split) stages.push_back(plan::items_text(items));
  return join(stages, " | ");
}

// Adds what the job goes on with, planned. An error: it cannot.
Status add_spec(const std::string& yaml, SplitAnswer& answer) {
  PENSTOCK_ASSIGN_OR_RETURN(plan::JobSpec parsed, plan::parse_job_spec(yaml));
  answer.spec = std::make_shared<const plan::JobSpec>(std::move(parsed));
  PENSTOCK_ASSIGN_OR_RETURN(answer.plan, plan_attempt(*answer.spec));
  return ok_status();
}

SplitAnswer keep(const std::string& because) {
  return {.advice = Keep, .because = because};
}

SplitAnswer undo(const SplitQuestion& question, const plan::LastMove& move) {
  SplitAnswer answer{.advice = Undo};
  const Status status = add_spec(question.moves.file_before, answer);
  if (!status.ok()) return keep(fmt::format("{}, but it cannot go back: {}", move.because, message(status)));
  answer.gain = std::max(0.0, -move.gain);
  answer.because =
      fmt::format("{}; stages {} in place of {}", move.because, stages_text(answer.spec->parallel.split),
                  stages_text(question.spec->parallel.split));
  return answer;
}

SplitAnswer judge_move(const SplitQuestion& question, const std::vector<plan::MeasuredRun>& runs) {
  const auto judged = plan::judge_last_move(*question.spec, runs);
  if (!judged.ok()) return keep("what the move brought cannot be told: " + message(judged.status()));
  if (!judged->has_value())
    return keep("what was measured before the move is not kept any more, or promises nothing");
  const plan::LastMove& move = **judged;
  switch (move.outcome) {
    case plan::MoveOutcomeSoFar::Open:
      return stay(move.because);
    case plan::MoveOutcomeSoFar::Paid:
      return keep(move.because);
    case plan::MoveOutcomeSoFar::Failed:
      break;
  }
  return undo(question, move);
}

bool was_undone(const SplitQuestion& question, const std::string& split) {
  const std::vector<std::string>& undone = question.moves.undone;
  return std::find(undone.begin(), undone.end(), split) != undone.end();
}

SplitAnswer only_said(SplitAnswer answer) {
  answer.spec.reset();
  answer.plan.reset();
  return answer;
}

SplitAnswer move_to(const SplitQuestion& question, const plan::Proposal& proposal) {
  SplitAnswer answer{
      .advice = Move, .split = plan::to_text(proposal.best), .gain = proposal.answer.predicted_gain};
  if (was_undone(question, answer.split))
    return stay("the best split is one that did not pay, or not start, before: " +
                stages_text(proposal.best));
  if (question.moves.undone.size() >= kMostUndone)
    return {.advice = Fixed,
            .because = fmt::format("{} moves have not paid already", question.moves.undone.size())};
  answer.because =
      fmt::format("stages {} in place of {}; a step takes {:.4g} ms, {:.4g} ms predicted: {}",
                  stages_text(proposal.best), stages_text(proposal.now), 1e3 * proposal.step_seconds,
                  1e3 * proposal.best_step_seconds, proposal.answer.because);
  const StatusOr<std::string> yaml = plan::with_proposed_split(*question.spec, proposal.best);
  const Status status = yaml.ok() ? add_spec(*yaml, answer) : yaml.status();
  if (!status.ok()) return stay(message(status));
  return question.spec->rebalance == plan::Rebalance::Apply ? answer : only_said(std::move(answer));
}

// Where a job has more than is kept of one, more steps would bring no more.
Status can_be_measured(const plan::JobSpec& spec) {
  const int64_t held = spec.stages() * int64_t{spec.parallel.pipelines()};
  const auto steps_most = static_cast<int64_t>(2 * sample_window(static_cast<size_t>(held)) - 1);
  const int64_t samples = steps_most * spec.microbatches(), needed = plan::ProposalOptions().samples_min;
  if (samples >= needed) return ok_status();
  return failed_precondition(
      "its ranks hold {} stages all together, of each of which the newest {} steps are kept: {} samples, and {} are needed to "
      "tell splits apart",
      held, steps_most, samples, needed);
}

Status was_measured(const SplitQuestion& question) {
  const bool is_cut = !question.attempts.empty() && question.attempts.back().series.size() >= kSeriesMax;
  if (!is_cut) return ok_status();
  return failed_precondition(
      "of its {} stages on {} ranks not all are measured: {} series are kept of an attempt",
      question.spec->stages(), question.spec->ranks(), kSeriesMax);
}

std::string what_rebalancing_cannot_do(const plan::JobSpec& spec) {
  if (spec.rebalance == plan::Rebalance::Off) return "";
  for (const Status& status : {plan::can_move_layers(spec), can_be_measured(spec)}) {
    if (!status.ok()) return "its split stays: " + message(status);
  }
  const bool has_checkpoints = spec.checkpoint.every > 0 && spec.checkpoint.every < spec.train.steps;
  return has_checkpoints ? ""
                         : "without a checkpoint before its end nothing is moved before the job's next start";
}

}  // namespace

SplitAnswer consider_split(const SplitQuestion& question) {
  const plan::JobSpec& spec = *question.spec;
  for (const Status& status : {plan::can_move_layers(spec), can_be_measured(spec), was_measured(question)}) {
    if (!status.ok()) return {.advice = Fixed, .because = message(status)};
  }
  const plan::SampledRuns sampled = runs_of(question.attempts);
  const std::vector<plan::MeasuredRun>& runs = sampled.runs;
  if (runs.empty() || runs.back().split != spec.parallel.split) return not_measured_yet(sampled);
  if (!question.moves.file_before.empty()) return judge_move(question, runs);
  const StatusOr<plan::Proposal> proposal =
      plan::propose(spec, runs, {.steps_left = question.steps_left, .move_seconds = question.move_seconds});
  if (!proposal.ok()) return stay(message(proposal.status()));
  return proposal->answer.move ? move_to(question, *proposal) : stay(proposal->answer.because);
}

CheckedJob with_rebalancing_notes(CheckedJob checked) {
  const std::string note = what_rebalancing_cannot_do(*checked.spec);
  if (note.empty()) return checked;
  plan::JobSpec noted = *checked.spec;
  noted.notes.push_back("rebalance: " + note);
  checked.spec = std::make_shared<const plan::JobSpec>(std::move(noted));
  checked.outcome = outcome_of(*checked.spec);
  return checked;
}

}  // namespace penstock::coordinator
