#include <algorithm>
#include <utility>

#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {
namespace {

// The rank's worker when it is still the incarnation that the rank was placed on, or null.
Worker* worker_of(Fleet& fleet, const RankState& rank) {
  Worker* worker = fleet.find(rank.worker);
  return worker && worker->incarnation == rank.incarnation ? worker : nullptr;
}

// Stops one rank of an attempt that is over. A rank that was never assigned has no executor.
void release_rank(Turn& turn, const Job& job, RankIndex index, const RankState& rank,
                  const std::string& reason) {
  Worker* worker = worker_of(turn.state.fleet, rank);
  if (!worker) return;
  const AttemptKey key{job.name(), job.attempt->number, rank.incarnation};
  Device* device = device_of(*worker, key, index);
  if (!device) return;
  if (!rank.assigned) {
    free_device(*device);
    executor_gone(turn, key);
    return;
  }
  const TimePoint again = turn.now.time + turn.state.options.abort_retry;
  stop(*device, reason, turn.now.time, again);
  // A finished rank's executor leaves by itself and a dead one is gone; the others are told now.
  if (worker->is_open() && !rank.finished && !rank.dead)
    turn.send(worker->session, Abort{key, index, reason});
}

// Ranks that have done everything leave while their last checkpoint is still on the way to its name: the attempt is not
// over then. And a rank that still lives would write on.
void remove_drafts_when_over(Turn& turn, const Job& job) {
  if (job.attempt || job.executors_left > 0 || job.last_checkpoints.directory.empty()) return;
  turn.emit(RemoveDrafts{job.name(), job.last_checkpoints});
}

void trim_logs(State& state) {
  size_t bytes = 0;
  for (auto name = state.ended.rbegin(); name != state.ended.rend(); ++name) {
    LogRing& log = state.jobs.at(*name).log;
    bytes += log.bytes();
    if (bytes <= state.options.log_bytes_of_ended) continue;
    bytes -= log.bytes();
    log.clear();
  }
}

void retire(Turn& turn, const std::string& name) {
  const Job& job = turn.state.jobs.at(name);
  if (!job.definition.request_id.empty()) turn.state.names_by_request.erase(job.definition.request_id);
  turn.save({DropJob{name}});
  turn.observe(JobRetired{name});
  turn.emit(JobChanged{name});
  turn.emit(LogGrew{name});
  turn.state.jobs.erase(name);
}

}  // namespace

// They are in the store since the job's end is, and are read from there when somebody asks.
void trim_losses(State& state) {
  size_t kept = 0;
  for (auto name = state.ended.rbegin(); name != state.ended.rend(); ++name) {
    Job& job = state.jobs.at(*name);
    kept += job.losses.size();
    if (kept <= state.options.losses_of_ended || job.losses.empty()) continue;
    kept -= job.losses.size();
    job.losses_in_store = job.losses.size();
    job.losses = {};
  }
}

namespace {

// The oldest ended jobs lose their traces first.
void trim_traces(Turn& turn) {
  State& state = turn.state;
  size_t bytes = 0;
  for (auto name = state.ended.rbegin(); name != state.ended.rend(); ++name) {
    Job& job = state.jobs.at(*name);
    bytes += job.traces.bytes();
    if (bytes <= state.options.trace_bytes_of_ended) continue;
    std::vector<Write> writes;
    for (const int64_t step : job.traces.trim(0)) writes.push_back(DropTrace{*name, step});
    if (!writes.empty()) turn.save(std::move(writes));
  }
}

// The oldest ended jobs lose their measurements first.
void trim_measurements(Turn& turn) {
  State& state = turn.state;
  size_t bytes = 0;
  for (auto name = state.ended.rbegin(); name != state.ended.rend(); ++name) {
    Job& job = state.jobs.at(*name);
    bytes += job.measurements.bytes();
    if (bytes <= state.options.measurement_bytes_of_ended || job.measurements.attempts().empty()) continue;
    bytes -= job.measurements.bytes();
    turn.save(without_measurements(job));
  }
}

}  // namespace

std::vector<Write> measured(const Job& job) {
  if (!job.measurements.has_steps()) return {};
  const std::deque<AttemptMeasurements>& attempts = job.measurements.attempts();
  return {PutMeasurements{job.name(), attempts.back()},
          DropMeasurements{job.name(), attempts.front().attempt}};
}

std::vector<Write> without_measurements(Job& job) {
  if (job.measurements.attempts().empty()) return {};
  const int64_t newest = job.measurements.attempts().back().attempt;
  job.measurements.clear();
  return {DropMeasurements{job.name(), newest + 1}};
}

void begin_ending(Turn& turn, Job& job, const End& end) {
  if (!job.live()) return;
  std::erase(turn.state.queue, job.name());
  turn.placing_due = true;

  JobStatus status = job.status;
  status.state = end.state;
  status.reason = end.reason;
  status.by = end.by;
  status.since_unix_ms = turn.now.unix_ms;
  status.exit_code = static_cast<int>(end.exit_code);
  if (!end.weights_digest.empty()) status.weights_digest = end.weights_digest;
  const JobEventView event{status.since_unix_ms, status.state, status.reason, status.by};
  std::vector<Write> writes = unsaved_progress(job);
  writes.push_back(PutStatus{job.name(), status});
  writes.push_back(
      AddEvent{job.name(), job.next_event, static_cast<int64_t>(turn.state.options.events_per_job), event});
  const Ticket ticket = turn.save(std::move(writes));
  job.ending = Ending{ticket, std::move(status)};
  turn.after(ticket, EndJob{job.name()});

  end_attempt(turn, job, end.reason);
}

void save_memory(Job& job, std::vector<Write>& writes) {
  if (job.memory_saved) return;
  writes.push_back(PutMemory{job.name(), job.memory});
  job.memory_saved = true;
}

std::vector<Write> unsaved_progress(Job& job) {
  const auto unsaved = job.losses.begin() + static_cast<std::ptrdiff_t>(job.steps_saved);
  std::vector<Write> writes = {AddLosses{job.name(), job.steps_saved, {unsaved, job.losses.end()}},
                               AddValidation{job.name(), job.take_unsaved_validation()},
                               PutStages{job.name(), job.stages}};
  save_memory(job, writes);
  job.steps_saved = static_cast<int64_t>(job.losses.size());
  append(writes, measured(job));
  return writes;
}

void end_attempt(Turn& turn, Job& job, const std::string& reason) {
  if (!job.attempt) return;
  const std::vector<RankState> ranks = std::move(job.attempt->ranks);
  for (size_t r = 0; r < ranks.size(); ++r)
    release_rank(turn, job, RankIndex(static_cast<int64_t>(r)), ranks[r], reason);
  answer(turn, turn.state.broker.end_attempt(job.name(), job.attempt->number, reason));
  job.attempt.reset();
  job.split_watch.forget_attempt();
  remove_drafts_when_over(turn, job);
}

void fail_job(Turn& turn, Job& job, const std::string& reason) {
  begin_ending(turn, job, {.reason = reason});
}

void finish_ending(Turn& turn, const std::string& name) {
  Job* job = turn.state.find_job(name);
  if (!job || !job->ending) return;
  enter(turn, *job, std::move(job->ending->status));
  job->ending.reset();
  job->spec.reset();
  job->recent_step_seconds.clear();
  turn.state.ended.push_back(name);
  turn.emit(LogGrew{name});
  trim_logs(turn.state);
  trim_losses(turn.state);
  trim_traces(turn);
  trim_measurements(turn);
  retire_jobs(turn);
}

// A job whose executors may be alive is kept: its name must not be given to another one before they are gone.
void retire_jobs(Turn& turn) {
  State& state = turn.state;
  for (auto it = state.ended.begin();
       it != state.ended.end() && state.ended.size() > state.options.jobs_ended;) {
    if (state.jobs.at(*it).executors_left > 0) {
      ++it;
      continue;
    }
    retire(turn, *it);
    it = state.ended.erase(it);
  }
}

void executor_gone(Turn& turn, const AttemptKey& attempt) {
  turn.placing_due = true;
  Job* job = turn.state.find_job(attempt.job);
  if (!job || job->status.attempt != attempt.attempt || job->executors_left == 0) return;
  if (--job->executors_left > 0) return;
  turn.save({ForgetAttempt{job->name()}});
  remove_drafts_when_over(turn, *job);
  if (job->ended()) {
    turn.emit(LogGrew{job->name()});
    retire_jobs(turn);
  }
}

}  // namespace penstock::coordinator
