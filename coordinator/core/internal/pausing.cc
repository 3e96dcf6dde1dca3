// Jobs that wait for a person: they give their devices back, and go on from their newest checkpoint, cut otherwise if
// their file says so.
#include <algorithm>
#include <utility>

#include "coordinator/core/internal/turn.h"
#include "plan/spec/same_training.h"

namespace penstock::coordinator {
namespace {

Status can_pause(const Job& job) {
  if (!job.live()) return failed_precondition("pause: job {} has ended or is about to", job.name());
  if (job.status.state != JobState::Running || job.spec->checkpoint.every > 0) return ok_status();
  return failed_precondition(
      "pause: job {}: expected a checkpoint section in its file, found none: its {} steps would be lost; cancel it, or "
      "let it end",
      job.name(), job.status.step);
}

// The next step at which it writes one, or its end.
std::string what_it_waits_for(const Job& job) {
  const int64_t every = job.spec->checkpoint.every;
  const int64_t next = (job.attempt->window.committed() / every + 1) * every;
  return next > job.definition.steps ? "its end, which comes before its next checkpoint"
                                     : fmt::format("the checkpoint of step {}", next);
}

Ticket pause(Turn& turn, Job& job, const std::string& principal) {
  const std::string reason = fmt::format("paused by {}", principal);
  if (job.status.state != JobState::Running) return become_paused(turn, job, reason, principal);
  job.paused_by = principal;
  return turn.save(move_job(turn, job, JobState::Draining,
                            fmt::format("{}: goes on to {}", reason, what_it_waits_for(job)), principal));
}

Status can_resume(const Job& job, const Resume& event) {
  if (job.live() && job.status.state == JobState::Draining) {
    return unavailable("resume: job {} is draining and not paused yet; try again", job.name());
  }
  if (!job.live() || job.status.state != JobState::Paused) {
    return failed_precondition("resume: job {} is {}: only a paused one is resumed", job.name(),
                               to_string(job.ending ? job.ending->status.state : job.status.state));
  }
  if (job.executors_left > 0) {
    return unavailable("resume: job {}: {} are still stopping; try again", job.name(),
                       counted(job.executors_left, "rank"));
  }
  if (!event.spec) return ok_status();
  if (job.looking_for_checkpoint) {
    return unavailable("resume: job {}: its newest checkpoint is being looked for; try again", job.name());
  }
  return with_context(plan::check_same_training(*job.spec, *event.spec), "resume");
}

}  // namespace

std::vector<Write> without_steps_beyond_checkpoint(Job& job) {
  JobStatus& status = job.status;
  const int64_t first = job.definition.first_step;
  status.step = std::min(status.step, std::max(status.durable_step, first));
  if (static_cast<int64_t>(job.losses.size()) > status.step - first)
    job.losses.resize(static_cast<size_t>(status.step - first));
  status.loss = job.losses.empty() ? std::nullopt : std::optional(job.losses.back());
  job.steps_saved = std::min(job.steps_saved, static_cast<int64_t>(job.losses.size()));
  std::erase_if(job.validation, [&](const ValidationView& each) { return each.step > status.step; });
  job.validation_saved = std::min(job.validation_saved, status.step);
  return {AddLosses{job.name(), job.steps_saved, {}}, DropValidation{job.name(), status.step}};
}

Ticket become_paused(Turn& turn, Job& job, const std::string& reason, const std::string& by) {
  std::erase(turn.state.queue, job.name());
  turn.placing_due = true;
  job.moving_since.reset();
  std::vector<Write> writes = unsaved_progress(job);
  if (job.status.state == JobState::Preparing)
    append(writes, move_job(turn, job, JobState::Draining, reason, by));
  append(writes, move_job(turn, job, JobState::Paused, reason, by));
  const Ticket ticket = turn.save(std::move(writes));
  end_attempt(turn, job, reason);
  return ticket;
}

void on_pause(Turn& turn, const Pause& event) {
  Job* job = turn.state.find_job(event.job);
  const Status refused = job && job->admitted ? can_pause(*job) : no_such_job(turn.state, event.job);
  if (!refused.ok()) return turn.emit(AnswerControl{event.reply, refused, "pause"});
  const bool done = job->status.state == JobState::Paused || job->status.state == JobState::Draining;
  const Ticket ticket = done ? turn.state.store.last() : pause(turn, *job, event.principal);
  answer_when_durable(turn, {ticket, job->name(), AnswerControl{event.reply, job->status.state, "pause"}});
}

void on_resume(Turn& turn, const Resume& event) {
  Job* job = turn.state.find_job(event.job);
  const Status refused = job && job->admitted ? can_resume(*job, event) : no_such_job(turn.state, event.job);
  if (!refused.ok()) return turn.emit(AnswerControl{event.reply, refused, "resume"});
  std::vector<Write> writes;
  if (event.spec) {
    // An event of its own, since that of waiting is replaced by what it waits for.
    const std::string sums = plan::other_sums(*job->spec, *event.spec);
    if (!sums.empty())
      note(turn, *job,
           fmt::format("goes on with {}: sums in another order, and so other last digits than before", sums));
    append(writes, without_steps_beyond_checkpoint(*job));
    if (!sums.empty()) job->definition.sums_since = job->status.step;
    // Layers that take another time now would be fitted together with those before.
    job->definition.moves.file_before.clear();
    if (!plan::differ_by_split_alone(*job->spec, *event.spec)) {
      append(writes, without_measurements(*job));
      job->definition.moves.undone.clear();
      job->failed_starts.clear();
    }
    writes.push_back(redefined(*job, event.spec));
    append(writes, without_traces(*job));
  }
  job->status.restarts = 0;  // somebody has looked at it
  job->status.barren_attempts = 0;
  append(writes, move_job(turn, *job, JobState::Queued, fmt::format("resumed by {}", event.principal),
                          event.principal));
  const Ticket ticket = turn.save(std::move(writes));
  enqueue(turn, *job);
  answer_when_durable(turn, {ticket, job->name(), AnswerControl{event.reply, job->status.state, "resume"}});
}

}  // namespace penstock::coordinator
