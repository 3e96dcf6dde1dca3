// From an attempt that has failed to the next one.
#include <algorithm>
#include <utility>

#include "coordinator/core/internal/turn.h"
#include "coordinator/core/jobs/restart.h"

namespace penstock::coordinator {

void fail_attempt(Turn& turn, Job& job, const std::string& reason, Cause cause) {
  if (!job.live() || !job.attempt) return;
  JobStatus& status = job.status;
  if (status.state == JobState::Draining) {
    become_paused(turn, job, fmt::format("paused; attempt {}: {}", status.attempt, reason), "coordinator");
    return;
  }
  std::optional<TakenBack> taken_back = cause == Cause::Attempt ? without_move(job) : std::nullopt;
  if (taken_back)
    return recover(turn, job, reason + "; " + taken_back->words, Duration{}, std::move(taken_back->writes));
  const bool progressed = status.durable_step > job.attempt->durable_before;
  const int64_t barren = progressed ? 0 : status.barren_attempts + 1;
  const RestartVerdict verdict = judge_restart(job.spec->restart, status.restarts, barren);
  if (!verdict.restarts)
    return begin_ending(turn, job, {.reason = reason + verdict.why, .exit_code = verdict.exit_code});
  status.barren_attempts = barren;
  ++status.restarts;
  recover(turn, job, reason, verdict.delay);
}

void recover(Turn& turn, Job& job, const std::string& reason, Duration delay, std::vector<Write> more) {
  turn.placing_due = true;
  job.recover_at = turn.now.time + delay;
  std::vector<Write> writes = unsaved_progress(job);
  append(writes, std::move(more));
  append(writes, move_job(turn, job, JobState::Recovering,
                          fmt::format("attempt {}: {}", job.status.attempt, reason), "coordinator"));
  turn.save(std::move(writes));
  end_attempt(turn, job, reason);
}

// Two attempts of a job never run beside one another: an executor that nobody hears of ends by itself within
// Options::stopping_limit, and is waited for.
void place_again(Turn& turn, Job& job) {
  if (job.status.state != JobState::Recovering || job.executors_left > 0 || turn.now.time < job.recover_at)
    return;
  turn.save(move_job(turn, job, JobState::Queued,
                     fmt::format("the ranks of attempt {} are gone", job.status.attempt), "coordinator"));
  enqueue(turn, job);
}

void enqueue(Turn& turn, const Job& job) {
  std::deque<std::string>& queue = turn.state.queue;
  const auto place = std::find_if(queue.begin(), queue.end(), [&](const std::string& name) {
    return turn.state.jobs.at(name).definition.sequence > job.definition.sequence;
  });
  queue.insert(place, job.name());
  turn.placing_due = true;
}

}  // namespace penstock::coordinator
