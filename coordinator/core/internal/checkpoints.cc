// Checkpoints: from what the ranks say to one that an attempt may start from.
//
//     every rank told --> steps before it durable --> CommitCheckpoint --> CheckpointCommitted --> durable_step
//
// The steps come first: a checkpoint of steps that are not on record could not be gone on from.
#include <filesystem>
#include <utility>

#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {
namespace {

void record_steps(Turn& turn, Job& job, int64_t step) {
  ++job.attempt->committing;
  std::vector<Write> writes = unsaved_progress(job);
  writes.push_back(PutStatus{job.name(), job.status});
  turn.after(turn.save(std::move(writes)), StepsRecorded{job.name(), job.attempt->order, step});
}

std::string what_stays(const Job& job) {
  return job.status.durable_step == 0 ? "there is none before it"
                                      : fmt::format("the last one is of step {}", job.status.durable_step);
}

Job* of_attempt(State& state, const std::string& name, int64_t order) {
  Job* job = state.find_job(name);
  return job && job->live() && job->attempt && job->attempt->order == order ? job : nullptr;
}

// Without dots, doubled slashes and with one at the end.
std::filesystem::path normal(const std::string& directory) {
  return (std::filesystem::path(directory) / "").lexically_normal();
}

void became_durable(Turn& turn, Job& job, int64_t step, const std::string& weights_digest) {
  job.status.durable_step = step;
  job.status.weights_digest = weights_digest;
  turn.save({PutStatus{job.name(), job.status}});
  turn.say("job {} attempt {}: checkpoint of step {}", job.name(), job.status.attempt, step);
  changed(turn, job);
}

// The attempt has ended while its checkpoint was on the way: a file that cuts the job anew goes back to it all the same.
void committed_late(Turn& turn, const CheckpointCommitted& event) {
  Job* job = turn.state.find_job(event.job);
  if (!event.status.ok() || !job || !job->live() || job->attempt || job->last_order != event.order) return;
  if (event.step > job->status.durable_step && event.step <= job->status.step)
    became_durable(turn, *job, event.step, event.weights_digest);
}

}  // namespace

std::string checkpoints_directory(const Options& options, const Job& job) {
  const std::string& directory = job.definition.checkpoints;
  if (directory.empty() || directory.front() == '/') return directory;
  return options.weights_root.empty() ? "" : options.weights_root + "/" + directory;
}

Status is_free_for_checkpoints(const State& state, const std::string& directory, const std::string& job) {
  if (!directory.starts_with('/')) return ok_status();  // the coordinator's, and of the job's name
  const std::filesystem::path wanted = normal(directory);
  for (const auto& [name, other] : state.jobs) {
    if (name == job || !other.live() || normal(other.definition.checkpoints) != wanted) continue;
    return already_exists(
        "checkpoint.directory: expected one of the job's own, found {} of job {}, which has not ended; choose another "
        "one",
        directory, name);
  }
  return ok_status();
}

// A checkpoint is committed by its name, and recorded after that: in between a coordinator may have died.
void look_for_checkpoint(Turn& turn, Job& job) {
  const std::string directory = checkpoints_directory(turn.state.options, job);
  if (directory.empty() || job.status.step == job.definition.first_step) return;
  job.looking_for_checkpoint = true;
  turn.emit(LookForCheckpoint{job.name(), directory, job.status.step});
}

void on_checkpoint_found(Turn& turn, const CheckpointFound& event) {
  Job* job = turn.state.find_job(event.job);
  if (!job || !job->live() || !job->looking_for_checkpoint) return;
  job->looking_for_checkpoint = false;
  if (!job->attempt && event.step > job->status.durable_step && event.step <= job->status.step)
    became_durable(turn, *job, event.step, event.weights_digest);
}

void checkpoint_written(Turn& turn, Job& job, const CheckpointWritten& report) {
  Attempt& attempt = *job.attempt;
  const auto rank = static_cast<size_t>(report.rank.value);
  PendingCheckpoint& pending = attempt.pending_checkpoints[report.step];
  pending.told.resize(attempt.ranks.size());
  if (pending.told[rank]) return turn.refuse(Refusal::Duplicate);
  pending.told[rank] = true;
  ++pending.count;
  if (!report.problem.empty() && pending.problem.empty()) {
    pending.problem =
        one_line(fmt::format("rank {} on {}: {}", rank, attempt.ranks[rank].worker, report.problem));
  }
  commit_checkpoints(turn, job);
}

void commit_checkpoints(Turn& turn, Job& job) {
  Attempt& attempt = *job.attempt;
  while (!attempt.pending_checkpoints.empty()) {
    const auto first = attempt.pending_checkpoints.begin();
    const int64_t step = first->first;
    if (first->second.count < static_cast<int>(attempt.ranks.size()) || attempt.window.committed() < step)
      return;
    const std::string problem = first->second.problem;
    attempt.pending_checkpoints.erase(first);
    attempt.last_checkpoint = step;
    if (problem.empty()) {
      record_steps(turn, job, step);
      continue;
    }
    note(turn, job,
         fmt::format("checkpoint of step {} was not written: {}; {}", step, problem, what_stays(job)));
    turn.emit(DiscardCheckpoint{job.name(), attempt.number, step, attempt.checkpoints});
  }
}

void steps_recorded(Turn& turn, const std::string& name, int64_t order, int64_t step) {
  const Job* job = of_attempt(turn.state, name, order);
  if (!job) return;
  turn.emit(CommitCheckpoint{name, order, job->attempt->number, step, job->spec, job->attempt->checkpoints});
}

void on_checkpoint_committed(Turn& turn, const CheckpointCommitted& event) {
  Job* job = of_attempt(turn.state, event.job, event.order);
  if (!job) return committed_late(turn, event);
  --job->attempt->committing;
  if (event.status.ok()) {
    became_durable(turn, *job, event.step, event.weights_digest);
  } else {
    note(turn, *job,
         fmt::format("checkpoint of step {} was not kept: {}; {}", event.step, message(event.status),
                     what_stays(*job)));
  }
  const bool done = job->attempt->finished == static_cast<int>(job->attempt->ranks.size());
  if (event.status.ok() && job->status.state == JobState::Draining && !done) {
    become_paused(turn, *job, fmt::format("paused, with a checkpoint of step {}", event.step),
                  job->paused_by);
    return;
  }
  if (event.status.ok() && job->status.state == JobState::Running && job->attempt->finished == 0)
    return move_or_ask(turn, *job);
  succeed_when_finished(turn, *job);
}

}  // namespace penstock::coordinator
