// A job whose file says `rebalance:` goes on with the split that its measurements ask for: from its newest checkpoint, without a
// restart that counts, and back again when that did not pay.
//
// Definition and state change in one transaction: a coordinator that dies finds the old split or the new one.
#include <algorithm>
#include <numeric>
#include <utility>

#include "coordinator/core/internal/kept_seats.h"
#include "coordinator/core/internal/turn.h"
#include "plan/spec/split_source.h"

namespace penstock::coordinator {
namespace {

std::string split_of(const Job& job) {
  return plan::to_text(job.spec->parallel.split);
}

void mark_undone(Job& job) {
  std::vector<std::string>& undone = job.definition.moves.undone;
  if (undone.size() < kMostUndone) undone.push_back(split_of(job));
}

std::vector<Write> recut(Job& job, const std::shared_ptr<const plan::JobSpec>& spec,
                         const std::string& file_before) {
  job.definition.moves.file_before = file_before;
  std::vector<Write> writes = {redefined(job, spec)};
  append(writes, without_traces(job));
  return writes;
}

// The file that it goes on with, and what must be remembered of it.
std::vector<Write> moved(Job& job, const SplitAnswer& answer) {
  const bool goes_back = answer.advice == SplitAdvice::Undo;
  if (goes_back) mark_undone(job);
  return recut(job, answer.spec, goes_back ? "" : job.spec->yaml);
}

// Of the job's split. The first time anything may have been the cause; where that cannot be remembered it must do.
bool has_failed_twice(Job& job) {
  std::vector<std::string>& failed = job.failed_starts;
  const std::string split = split_of(job);
  if (std::find(failed.begin(), failed.end(), split) != failed.end() || failed.size() >= kMostUndone)
    return true;
  failed.push_back(split);
  return false;
}

std::string what_changes(const SplitAnswer& answer) {
  return answer.advice == SplitAdvice::Undo ? "goes back to the split before" : "goes on with another split";
}

// The executors are stopped, and the job is placed again where they were when they are gone.
void move(Turn& turn, Job& job) {
  const SplitAnswer answer = *std::exchange(job.split_watch.decided, std::nullopt);
  const std::string reason = fmt::format("{}, from the checkpoint of step {}: {}", what_changes(answer),
                                         job.status.durable_step, answer.because);
  turn.placing_due = true;
  job.recover_at = turn.now.time;
  job.moving_since = turn.now.time;
  std::vector<Write> writes = unsaved_progress(job);
  append(writes, moved(job, answer));
  append(writes, move_job(turn, job, JobState::Recovering, reason, kRebalancer));
  turn.save(std::move(writes));
  end_attempt(turn, job, what_changes(answer));
}

void propose(Turn& turn, Job& job, const SplitAnswer& answer) {
  std::vector<std::string>& proposed = job.split_watch.proposed;
  const bool is_known = std::find(proposed.begin(), proposed.end(), answer.split) != proposed.end();
  if (is_known || proposed.size() >= kMostUndone) return;
  proposed.push_back(answer.split);
  note(turn, job,
       fmt::format("another split is proposed: {}; `penstock rebalance {} --apply` goes on with it",
                   answer.because, job.name()),
       kRebalancer);
}

// A failing rank decides first, and while the store fails nothing would start again.
bool may_stop(const Turn& turn, const Job& job) {
  return job.status.state == JobState::Running && job.attempt->finished == 0 && !job.attempt->suspicion &&
         turn.state.store_health.ok();
}

MoveWeights weigh(const Job& job, const SplitAnswer& answer) {
  const JobStatus& status = job.status;
  const std::deque<double>& recent = job.recent_step_seconds;
  const double seconds = std::accumulate(recent.begin(), recent.end(), 0.0);
  const double steps_a_second = seconds > 0 ? static_cast<double>(recent.size()) / seconds : 0;
  return {.goes_back = answer.advice == SplitAdvice::Undo,
          .gain = answer.gain,
          .steps_since = status.step - std::max(status.durable_step, job.definition.first_step),
          .checkpoint_every = job.spec->checkpoint.every,
          .steps_left = job.definition.steps - status.step,
          .move_steps = job.start_seconds * steps_a_second};
}

void drop_decision(Turn& turn, Job& job) {
  job.split_watch.decided.reset();
  turn.say("job {}: its split stays: the steps left after step {} do not pay a move", job.name(),
           job.status.step);
}

// At the checkpoint that the decision waited for; its commit may have taken a while.
void move_if_it_pays(Turn& turn, Job& job) {
  const MoveWeights weights = weigh(job, *job.split_watch.decided);
  if (!pays(weights, weights.steps_since, weights.steps_left)) return drop_decision(turn, job);
  move(turn, job);
}

// What changes nothing of how the job is cut. False: a Move or an Undo that is to be applied.
bool heed(Turn& turn, Job& job, const SplitAnswer& answer) {
  switch (answer.advice) {
    case SplitAdvice::Stay:
      turn.say("job {}: its split stays: {}", job.name(), answer.because);
      return true;
    case SplitAdvice::Fixed:
      job.split_watch.is_fixed = true;
      note(turn, job, "its split stays: " + answer.because, kRebalancer);
      return true;
    case SplitAdvice::Keep:
      job.definition.moves.file_before.clear();
      turn.save({PutDefinition{job.definition}});
      note(turn, job, "keeps the new split: " + answer.because, kRebalancer);
      return true;
    case SplitAdvice::Move:
    case SplitAdvice::Undo:
      break;
  }
  if (answer.spec) return false;
  propose(turn, job, answer);
  return true;
}

// With its present split. A coordinator that was restarted knows of those that were measured.
bool has_done_steps(const Job& job) {
  if (job.split_watch.has_done_steps) return true;
  const std::vector<std::string> stages = stage_items(*job.spec);
  const std::deque<AttemptMeasurements>& attempts = job.measurements.attempts();
  return std::any_of(attempts.begin(), attempts.end(), [&](const AttemptMeasurements& attempt) {
    return attempt.steps > 0 && attempt.stages == stages;
  });
}

}  // namespace

std::optional<SplitQuestion> question_on_split(const Job& job) {
  const std::deque<AttemptMeasurements>& attempts = job.measurements.attempts();
  if (job.spec->rebalance == plan::Rebalance::Off || job.split_watch.is_fixed ||
      !job.measurements.has_steps())
    return std::nullopt;
  if (attempts.back().stages != stage_items(*job.spec)) return std::nullopt;
  return SplitQuestion{.spec = job.spec,
                       .attempts = {attempts.begin(), attempts.end()},
                       .moves = job.definition.moves,
                       .steps_left = job.definition.steps - job.status.durable_step};
}

void move_or_ask(Turn& turn, Job& job) {
  SplitWatch& watch = job.split_watch;
  if (watch.decided && !may_stop(turn, job)) return;
  if (watch.decided) return move_if_it_pays(turn, job);
  if (job.status.step >= job.definition.steps ||
      !question_is_due(*job.spec, job.measurements, watch, turn.state.options.question))
    return;
  std::optional<SplitQuestion> question = question_on_split(job);
  if (!question) return;
  question->move_seconds = job.start_seconds;
  watch.asked = true;
  watch.measured_steps = job.measurements.attempts().back().steps;
  turn.emit(ConsiderSplit{job.name(), job.attempt->order, *std::move(question)});
}

void on_split_considered(Turn& turn, SplitConsidered event) {
  Job* job = turn.state.find_job(event.job);
  if (!job || !job->live() || !job->attempt || job->attempt->order != event.order) return;
  SplitWatch& watch = job->split_watch;
  watch.asked = false;
  if (job->status.state != JobState::Running) return;  // a person pauses it: its next start asks again
  if (heed(turn, *job, event.answer)) return;
  event.answer.plan.reset();  // the attempt's is made from its spec
  watch.decided = std::move(event.answer);
  switch (time_to_move(weigh(*job, *watch.decided))) {
    case MoveTime::Now:
      if (may_stop(turn, *job)) move(turn, *job);
      return;
    case MoveTime::AtCheckpoint:
      return;
    case MoveTime::Never:
      return drop_decision(turn, *job);
  }
}

void start_with_split(Turn& turn, Job& job, SplitAnswer answer) {
  if (heed(turn, job, answer)) return;
  turn.save(moved(job, answer));
  note(turn, job, fmt::format("{}: {}", what_changes(answer), answer.because), kRebalancer);
}

bool tries_split(const Job& job) {
  const bool was_planned = job.attempt && job.attempt->prepare_by;
  return was_planned && !job.definition.moves.file_before.empty() && !has_done_steps(job);
}

std::optional<TakenBack> without_move(Job& job) {
  if (!tries_split(job)) return std::nullopt;
  StatusOr<plan::JobSpec> before = plan::parse_job_spec(job.definition.moves.file_before);
  if (!before.ok()) return std::nullopt;
  const bool for_good = has_failed_twice(job);
  if (for_good) mark_undone(job);
  return TakenBack{.words = fmt::format("no step was done with the new split: goes back to the one before{}",
                                        for_good ? ", for good" : ""),
                   .writes = recut(job, std::make_shared<const plan::JobSpec>(*std::move(before)), "")};
}

}  // namespace penstock::coordinator
