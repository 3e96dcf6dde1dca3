#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "coordinator/core/internal/kept_seats.h"
#include "coordinator/core/internal/turn.h"
#include "coordinator/core/jobs/lifecycle.h"

namespace penstock::coordinator {
namespace {

JobEventView event_of(const JobStatus& status) {
  return {status.since_unix_ms, status.state, status.reason, status.by};
}

std::string free_name(const State& state, const std::string& wanted) {
  std::string name = wanted;
  for (int suffix = 2; state.jobs.contains(name); ++suffix) name = fmt::format("{}-{}", wanted, suffix);
  return name;
}

Status can_submit(const State& state, const plan::JobSpec& spec) {
  if (const Status trouble = store_trouble(state); !trouble.ok())
    return error(trouble.code(), "submit: nothing was submitted: {}; try again when it can",
                 message(trouble));
  const size_t live = state.jobs.size() - state.ended.size();
  if (live >= state.options.jobs_live) {
    return resource_exhausted("submit: {} jobs are queued or running, at most {} may be; cancel one or wait",
                              live, state.options.jobs_live);
  }
  if (state.store.pending() >= state.options.transactions_pending) {
    return unavailable(
        "submit: the store has {} transactions that are not on disk yet; look at the coordinator's log",
        state.store.pending());
  }
  const std::string name = free_name(state, spec.name);
  return with_context(is_free_for_checkpoints(state, checkpoints_of(spec, name), name), "submit");
}

Job new_job(Turn& turn, const Submit& event) {
  State& state = turn.state;
  const plan::JobSpec& spec = *event.spec;
  Job job;
  job.spec = event.spec;
  job.definition = {.name = free_name(state, spec.name),
                    .request_id = event.request_id,
                    .principal = event.principal,
                    .spec_yaml = spec.yaml,
                    .schedule = spec.parallel.schedule,
                    .sequence = state.next_sequence++,
                    .submitted_unix_ms = turn.now.unix_ms,
                    .steps = spec.train.steps,
                    .tokens_per_step = spec.tokens_per_step(),
                    .ranks = spec.ranks(),
                    .stages = spec.stages(),
                    .microbatches = spec.microbatches(),
                    .started_from = spec.restart.from.path,
                    .first_step = spec.restart.from.step};
  job.definition.checkpoints = checkpoints_of(spec, job.name());
  job.status = {.state = JobState::Queued,
                .reason = "submitted",
                .by = event.principal,
                .since_unix_ms = turn.now.unix_ms,
                .step = job.definition.first_step};
  job.events.push_back(event_of(job.status));
  job.next_event = 1;
  return job;
}

SubmitOutcome outcome_for(const Job& job, const plan::JobSpec& spec) {
  SubmitOutcome outcome = outcome_of(spec);
  outcome.name = job.name();
  return outcome;
}

// The job that this request id made before, if any. True when the submission has been answered.
bool answer_repeated(Turn& turn, const Submit& event) {
  if (event.request_id.empty()) return false;
  auto known = turn.state.names_by_request.find(event.request_id);
  if (known == turn.state.names_by_request.end()) return false;
  const Job& job = turn.state.jobs.at(known->second);
  const JobDefinition& definition = job.definition;
  const std::string& submitted =
      definition.submitted_yaml.empty() ? definition.spec_yaml : definition.submitted_yaml;
  if (submitted != event.spec->yaml) {
    turn.emit(AnswerSubmit{
        event.reply, already_exists("submit: request id {} was used for job {}, whose file is another one",
                                    event.request_id, job.name())});
    return true;
  }
  answer_when_durable(turn,
                      {job.created, job.name(), AnswerSubmit{event.reply, outcome_for(job, *event.spec)}});
  return true;
}

// What a restarted coordinator does with a job that was not over.
void resume(Turn& turn, Job& job) {
  const JobState state = job.status.state;
  StatusOr<plan::JobSpec> spec = plan::parse_job_spec(job.definition.spec_yaml);
  if (!spec.ok()) {
    fail_job(turn, job, "the restarted coordinator refuses the job file: " + message(spec.status()));
    return;
  }
  job.spec = std::make_shared<const plan::JobSpec>(*std::move(spec));
  // A save may hold a later status than its losses: what is not on record is done again. Emulated devices have none.
  if (!job.spec->device.emulated())
    job.status.step = std::min(job.status.step, job.definition.first_step + job.steps_saved);
  look_for_checkpoint(turn, job);
  if (moves_by_itself(job.status)) job.moving_since = turn.now.time;
  if (state == JobState::Paused || state == JobState::Recovering) return;
  if (state == JobState::Placing)
    turn.save(move_job(turn, job, JobState::Queued, "the coordinator was restarted", "coordinator"));
  if (state == JobState::Queued || state == JobState::Placing) {
    turn.state.queue.push_back(job.name());
    return;
  }
  const std::string reason = fmt::format("the coordinator was restarted while the job was {} in step {}",
                                         to_string(state), job.status.step);
  if (state == JobState::Draining) {
    become_paused(turn, job, reason, "coordinator");
    return;
  }
  // Not the job's fault: it costs nothing of its budget.
  if (job.spec->restart.max > 0) return recover(turn, job, reason, Duration{});
  fail_job(turn, job, reason + ", and restart.max is 0: submit it again");
}

Job job_from(const StoredJob& stored) {
  Job job;
  job.definition = stored.definition;
  job.status = stored.status;
  job.admitted = true;
  job.events.assign(stored.events.begin(), stored.events.end());
  job.next_event = stored.next_event;
  job.losses = stored.losses;
  job.losses_in_store = stored.losses_in_store;
  job.steps_saved = static_cast<int64_t>(job.losses.size());
  job.validation.assign(stored.validation.begin(), stored.validation.end());
  if (!job.validation.empty()) job.validation_saved = job.validation.back().step;
  job.stages = stored.stages;
  job.memory = stored.memory;
  for (const auto& [step, ranks] : stored.traces) job.traces.restore(step, ranks);
  for (const auto& [attempt, measurements] : stored.measurements) job.measurements.restore(measurements);
  job.placed = stored.placed;
  job.last_order = stored.placed_order;
  job.executors_left = static_cast<int>(stored.placed.size());
  return job;
}

bool is_waiting(JobState state) {
  return state == JobState::Queued || state == JobState::Placing;
}

// Adds the event, or puts it in the last one's place: a job that waits, or that flutters, must not push out what
// happened before.
void add_event(Turn& turn, Job& job, bool replaces, JobEventView event) {
  if (replaces) {
    job.events.back() = std::move(event);
    return;
  }
  job.events.push_back(std::move(event));
  ++job.next_event;
  while (job.events.size() > turn.state.options.events_per_job) job.events.pop_front();
}

void add_event(Turn& turn, Job& job, bool replaces) {
  add_event(turn, job, replaces, event_of(job.status));
}

}  // namespace

std::string checkpoints_of(const plan::JobSpec& spec, const std::string& name) {
  if (spec.checkpoint.every == 0) return "";
  return spec.checkpoint.directory.empty() ? name + "/checkpoints" : spec.checkpoint.directory;
}

void changed(Turn& turn, Job& job) {
  ++job.version;
  turn.emit(JobChanged{job.name()});
}

std::vector<Write> move_job(Turn& turn, Job& job, JobState state, const std::string& reason,
                            const std::string& by) {
  JobStatus status = job.status;
  status.state = state;
  status.reason = reason;
  status.by = by;
  status.since_unix_ms = turn.now.unix_ms;
  const int64_t sequence = enter(turn, job, std::move(status));
  return {PutStatus{job.name(), job.status},
          AddEvent{job.name(), sequence, static_cast<int64_t>(turn.state.options.events_per_job),
                   job.events.back()}};
}

int64_t enter(Turn& turn, Job& job, JobStatus status) {
  PENSTOCK_CHECK(can_move(job.status.state, status.state), "job {}: {} -> {}", job.name(),
                 to_string(job.status.state), to_string(status.state));
  job.status = std::move(status);
  const bool waits_still =
      is_waiting(job.status.state) && job.next_event > 1 && is_waiting(job.events.back().state);
  add_event(turn, job, waits_still);
  job.notes = 0;
  turn.say("job {} attempt {}: {}: {}", job.name(), job.status.attempt, to_string(job.status.state),
           job.status.reason);
  changed(turn, job);
  return job.next_event - 1;
}

void note(Turn& turn, Job& job, const std::string& reason, const std::string& by) {
  if (turn.state.store.pending() >= turn.state.options.transactions_pending)
    return set_reason(turn, job, reason);
  job.status.reason = reason;
  job.status.by = by;
  const bool full = job.notes >= turn.state.options.notes_per_job;
  JobEventView event = event_of(job.status);
  event.unix_ms = turn.now.unix_ms;
  add_event(turn, job, full, std::move(event));
  job.notes += !full;
  turn.save({PutStatus{job.name(), job.status},
             AddEvent{job.name(), job.next_event - 1, static_cast<int64_t>(turn.state.options.events_per_job),
                      job.events.back()}});
  turn.warn("job {} attempt {}: {}", job.name(), job.status.attempt, reason);
  changed(turn, job);
}

void set_reason(Turn& turn, Job& job, const std::string& reason, bool logged) {
  if (job.status.reason == reason) return;
  job.status.reason = reason;
  if (logged) turn.say("job {}: {}: {}", job.name(), to_string(job.status.state), reason);
  changed(turn, job);
}

void on_restore(Turn& turn, Restore event) {
  State& state = turn.state;
  state.fleet.cordons = std::move(event.cordons);
  std::vector<std::string> unfinished;
  std::vector<const StoredJob*> ended;
  for (const StoredJob& stored : event.jobs) {
    const JobDefinition& definition = stored.definition;
    state.next_sequence = std::max(state.next_sequence, definition.sequence + 1);
    state.next_placement = std::max(state.next_placement, stored.placed_order + 1);
    if (!definition.request_id.empty()) state.names_by_request[definition.request_id] = definition.name;
    for (const RankPlacement& rank : stored.placed) {
      const AttemptKey key{definition.name, stored.placed_attempt, rank.incarnation};
      state.fleet.leftovers.emplace(
          rank.worker, Leftover{key, rank.rank, rank.device, stored.placed_order, turn.now.time});
    }
    state.jobs.emplace(definition.name, job_from(stored));
    if (has_ended(stored.status.state)) {
      ended.push_back(&stored);
    } else {
      unfinished.push_back(definition.name);
    }
  }
  std::stable_sort(ended.begin(), ended.end(), [](const StoredJob* a, const StoredJob* b) {
    return a->status.since_unix_ms < b->status.since_unix_ms;
  });
  for (const StoredJob* job : ended) state.ended.push_back(job->definition.name);
  for (const std::string& name : unfinished) resume(turn, state.jobs.at(name));
  retire_jobs(turn);
  turn.placing_due = true;
  if (!event.jobs.empty()) {
    turn.say("known from before: {}, {} unfinished", counted(static_cast<int64_t>(event.jobs.size()), "job"),
             unfinished.size());
  }
}

void on_submit(Turn& turn, Submit event) {
  if (answer_repeated(turn, event)) return;
  if (Status status = can_submit(turn.state, *event.spec); !status.ok()) {
    turn.emit(AnswerSubmit{event.reply, status});
    return;
  }
  Job job = new_job(turn, event);
  const std::string name = job.name();
  job.created =
      turn.save({CreateJob{job.definition, job.status},
                 AddEvent{name, 0, static_cast<int64_t>(turn.state.options.events_per_job), job.events[0]}});
  turn.after(job.created, AdmitJob{name});
  const Ticket created = job.created;
  AnswerSubmit answer{event.reply, outcome_for(job, *event.spec)};
  if (!event.request_id.empty()) turn.state.names_by_request[event.request_id] = name;
  turn.state.jobs.emplace(name, std::move(job));
  answer_when_durable(turn, {created, name, std::move(answer)});
}

void admit_job(Turn& turn, const std::string& name) {
  Job* job = turn.state.find_job(name);
  if (!job) return;
  job->admitted = true;
  turn.state.queue.push_back(name);
  turn.placing_due = true;
  turn.state.place_next = turn.now.time;
  turn.say("job {}: submitted by {}: {}, {}", name, job->definition.principal,
           counted(job->definition.ranks, "rank"), job->definition.schedule);
  changed(turn, *job);
}

void on_cancel(Turn& turn, const Cancel& event) {
  Job* job = turn.state.find_job(event.job);
  if (!job || !job->admitted) {
    turn.emit(AnswerControl{event.reply, no_such_job(turn.state, event.job)});
    return;
  }
  if (job->live()) {
    begin_ending(turn, *job,
                 {.state = JobState::Cancelled,
                  .reason = fmt::format("cancelled by {}", event.principal),
                  .by = event.principal,
                  .exit_code = ExitCode::Cancelled});
  }
  if (job->ended()) {
    turn.emit(AnswerControl{event.reply, job->status.state});
  } else {
    answer_when_durable(
        turn, {job->ending->ticket, job->name(), AnswerControl{event.reply, job->ending->status.state}});
  }
}

Status no_such_job(const State& state, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, job] : state.jobs) {
    if (job.admitted) names.push_back(known);
  }
  const std::string nearest = nearest_name(name, names);
  return not_found("job {}: not known{}", name,
                   nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

}  // namespace penstock::coordinator
