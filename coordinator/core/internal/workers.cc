#include <algorithm>
#include <utility>

#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {
namespace {

// Takes the worker for lost, and with it the attempts whose ranks it runs.
void lose(Turn& turn, Worker& worker, const std::string& reason) {
  turn.warn("worker {} incarnation {} is lost: {}", worker.name, worker.incarnation, reason);
  turn.placing_due = true;
  lose_worker(turn.state.fleet, worker, reason, turn.now.time, turn.now.unix_ms);
  for (size_t d = 0; d < worker.devices.size(); ++d) {
    const Device device = worker.devices[d];
    if (device.use != DeviceUse::Held) continue;
    Job* job = turn.state.find_job(device.attempt.job);
    if (!job || !job->live() || !job->attempt) continue;
    if (job->attempt->ranks[static_cast<size_t>(device.rank.value)].finished) continue;
    fail_attempt(turn, *job,
                 fmt::format("rank {} was lost in step {}: worker {}: {}", device.rank.value,
                             job->attempt->window.next_of(device.rank), worker.name, reason),
                 Cause::Worker);
  }
}

bool is_idle(const Worker& worker) {
  return std::all_of(worker.devices.begin(), worker.devices.end(),
                     [](const Device& device) { return device.use == DeviceUse::Free; });
}

void executors_gone(Turn& turn, const std::vector<Gone>& gone) {
  for (const Gone& rank : gone) executor_gone(turn, rank.attempt);
}

void end_sessions_of(Turn& turn, const Registration& registration) {
  Worker* before = turn.state.fleet.find(registration.worker);
  if (!before || !before->is_open()) return;
  const SessionId session = before->session;
  const std::string why =
      registration.incarnation == before->incarnation
          ? "its process opened a new session"
          : fmt::format("a newer process took its name (incarnation {})", registration.incarnation);
  lose(turn, *before, why);
  turn.emit(CloseSession{session, aborted("worker {}: {}", registration.worker, why)});
}

void expire_leases(Turn& turn) {
  const Options& options = turn.state.options;
  for (const std::string& name : expired_leases(turn.state.fleet, turn.now.time, options)) {
    Worker& worker = *turn.state.fleet.find(name);
    const SessionId session = worker.session;
    const std::string why =
        fmt::format("silent for {:.1f} s, {} leases of {:g} s", to_seconds(turn.now.time - worker.heard),
                    options.leases_missed, to_seconds(options.lease));
    turn.observe(LeaseExpired{name});
    lose(turn, worker, why);
    turn.emit(CloseSession{session, unavailable("worker {}: {}", name, why)});
  }
}

}  // namespace

void on_opened(Turn& turn, SessionOpened event) {
  State& state = turn.state;
  const Registration& registration = event.registration;
  Status status = check_registration(registration, state.options);
  if (status.ok()) status = can_register(state.fleet, registration, state.options);
  if (!status.ok()) {
    turn.refuse(status.code() == StatusCode::kAborted ? Refusal::Stale : Refusal::Malformed);
    turn.warn("{}", message(status));
    turn.emit(CloseSession{event.session, status});
    return;
  }
  end_sessions_of(turn, registration);
  const std::vector<Gone> gone =
      register_worker(state.fleet, event.session, registration, turn.now.time, turn.now.unix_ms);
  executors_gone(turn, gone);
  executors_gone(turn, forget_old(state.fleet, turn.now.time, state.options));
  turn.placing_due = true;
  turn.say("worker {} incarnation {} on host {} (pid {}) registered with {}", registration.worker,
           registration.incarnation, registration.host_id, registration.pid,
           counted(static_cast<int64_t>(registration.devices.size()), "device"));
  turn.send(event.session,
            Registered{std::chrono::duration_cast<std::chrono::milliseconds>(state.options.lease).count(),
                       state.options.leases_missed, state.options.instance});
  send_due_aborts(turn, *state.fleet.find(registration.worker));
}

void on_closed(Turn& turn, const SessionClosed& event) {
  Worker* worker = turn.state.fleet.of_session(event.session);
  if (!worker) return;
  if (!worker->draining || !is_idle(*worker)) return lose(turn, *worker, event.reason);
  turn.say("worker {} incarnation {} has drained and left", worker->name, worker->incarnation);
  const std::string name = worker->name;
  turn.state.fleet.sessions.erase(event.session);
  turn.state.fleet.workers.erase(name);
  turn.placing_due = true;
}

void send_due_aborts(Turn& turn, Worker& worker) {
  if (!worker.is_open()) return;
  for (Device& device : worker.devices) {
    if (device.use != DeviceUse::Stopping || turn.now.time < device.next_abort) continue;
    device.next_abort = turn.now.time + turn.state.options.abort_retry;
    turn.send(worker.session, Abort{device.attempt, device.rank, device.stop_reason});
  }
}

void on_tick(Turn& turn) {
  State& state = turn.state;
  expire_leases(turn);
  for (auto& [name, worker] : state.fleet.workers) send_due_aborts(turn, worker);
  executors_gone(turn, forget_old(state.fleet, turn.now.time, state.options));  // whose jobs are queued below
  for (auto& [name, job] : state.jobs) {
    if (job.live() && job.attempt) check_deadlines(turn, job);
    if (job.live() && job.attempt) check_stall(turn, job);
    if (job.live()) place_again(turn, job);
  }
  answer_overdue(turn);
  answer_impatient(turn);
}

}  // namespace penstock::coordinator
