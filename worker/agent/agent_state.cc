#include "worker/agent/agent_state.h"

#include <algorithm>
#include <utility>

namespace penstock::worker {
namespace {

std::string name(const AttemptKey& attempt, RankIndex rank) {
  return fmt::format("job {} attempt {} rank {}", attempt.job, attempt.attempt, rank.value);
}

Send failed(const AttemptKey& attempt, RankIndex rank, std::string reason, int64_t step = -1) {
  return Send{RankFailed{attempt, rank, step, std::move(reason), 0, 0}};
}

std::string where(int64_t step) {
  return step < 0 ? "before its first step" : fmt::format("in step {}", step);
}

}  // namespace

AgentState::AgentState(AgentIdentity identity, AgentLimits limits, uint64_t jitter_seed)
    : identity_(std::move(identity)),
      limits_(limits),
      jitter_(static_cast<std::minstd_rand::result_type>(jitter_seed)),
      backoff_(limits.backoff_first),
      lease_(limits.lease),
      leases_missed_(limits.leases_missed),
      devices_(static_cast<size_t>(identity_.devices)) {}

std::vector<AgentCommand> AgentState::apply(TimePoint now, const AgentEvent& event) {
  Commands out;
  if (ended_) return out;
  std::visit([&](const auto& e) { on(now, e, out); }, event);
  if (draining_since_) end_when_idle(now, out);
  return out;
}

int AgentState::busy_devices() const {
  return static_cast<int>(std::count_if(devices_.begin(), devices_.end(),
                                        [](const Device& d) { return d.phase != Phase::Free; }));
}

// --- the session ---

void AgentState::on(TimePoint now, const SessionOpened& event, Commands& out) {
  if (session_ != Session::Connecting) return;
  session_ = Session::Open;
  ++sessions_;
  away_since_.reset();
  backoff_ = limits_.backoff_first;
  lease_ = std::max<Duration>(event.lease, 100ms);
  leases_missed_ = std::max(event.leases_missed, 1);
  last_heard_ = now;
  heartbeat_at_ = now + lease_ / 2;
  for (const Device& device : devices_) {
    if (device.phase != Phase::Running) continue;
    out.push_back(Send{RankReady{device.attempt, device.rank, device.pid, device.fingerprint}});
  }
}

void AgentState::on(TimePoint now, const SessionHeard&, Commands&) {
  last_heard_ = now;
}

bool AgentState::is_final(const Status& status) const {
  if (status.code() == StatusCode::kAborted)
    return true;  // a newer process has the name, now or from the start
  const bool refused =
      status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kPermissionDenied;
  return refused && session_ == Session::Connecting;
}

void AgentState::on(TimePoint now, const SessionEnded& event, Commands& out) {
  if (session_ == Session::Disconnected) return;
  const bool final = is_final(event.status);
  session_ = Session::Disconnected;
  if (final && !finishing_session_) {
    const std::string who = fmt::format("the coordinator refuses worker {} incarnation {}", identity_.worker,
                                        identity_.incarnation);
    out.push_back(End{with_context(event.status, who)});
    ended_ = true;
    return;
  }
  if (!away_since_) away_since_ = now;
  connect_at_ = now + next_backoff();
  if (finishing_session_) {
    out.push_back(End{ok_status()});
    ended_ = true;
  }
}

// Half of it is drawn anew each time, so that a fleet does not come back in one instant.
Duration AgentState::next_backoff() {
  const Duration whole = backoff_;
  backoff_ = std::min(backoff_ * 2, limits_.backoff_most);
  const double share = 0.5 + 0.5 * std::uniform_real_distribution<double>(0, 1)(jitter_);
  return std::chrono::duration_cast<Duration>(whole * share);
}

void AgentState::tick_session(TimePoint now, Commands& out) {
  switch (session_) {
    case Session::Disconnected:
      if (now < connect_at_ || finishing_session_) return;
      if (!away_since_) away_since_ = now;
      session_ = Session::Connecting;
      session_since_ = now;
      out.push_back(Connect{});
      return;
    case Session::Connecting:
      if (now - session_since_ < limits_.connect_timeout) return;
      session_ = Session::Closing;
      out.push_back(CloseSession{
          fmt::format("no answer to the registration within {} s", to_seconds(limits_.connect_timeout))});
      return;
    case Session::Open:
      if (now - last_heard_ >= lease_ * leases_missed_) {
        session_ = Session::Closing;
        away_since_ = last_heard_;
        out.push_back(
            CloseSession{fmt::format("the coordinator was silent for {} s", to_seconds(now - last_heard_))});
      } else if (now >= heartbeat_at_) {
        heartbeat_at_ = now + lease_ / 2;
        out.push_back(Send{HeartbeatDue{++heartbeats_}});
      }
      return;
    case Session::Closing:
      return;
  }
}

// --- commands of the coordinator ---

Status AgentState::admits(const Assignment& assignment) const {
  const AttemptKey& key = assignment.attempt;
  if (key.incarnation != identity_.incarnation)
    return aborted("incarnation {} expected, {} received: the assignment is for an earlier life of {}",
                   identity_.incarnation, key.incarnation, identity_.worker);
  if (const auto seen = seen_.find(key.job); seen != seen_.end() && key.attempt < seen->second.attempt)
    return aborted("attempt {} is stale: attempt {} of this job was here already", key.attempt,
                   seen->second.attempt);
  if (assignment.device < 0 || assignment.device >= identity_.devices)
    return invalid_argument("device {} expected in 0..{}", assignment.device, identity_.devices - 1);
  if (draining()) return unavailable("{} is draining", identity_.worker);
  const Device& device = devices_[static_cast<size_t>(assignment.device)];
  if (device.phase != Phase::Free && (device.session == sessions_ || device.waiting))
    return failed_precondition("device {} is busy with {}", assignment.device,
                               name(device.attempt, device.rank));
  return ok_status();
}

void AgentState::on(TimePoint, const AssignReceived& event, Commands& out) {
  const Assignment& assignment = event.assignment;
  if (find(assignment.attempt, assignment.rank) != nullptr) return;  // said twice
  if (const Status admitted = admits(assignment); !admitted.ok()) {
    out.push_back(
        failed(assignment.attempt, assignment.rank,
               fmt::format("worker {} refused its assignment: {}", identity_.worker, message(admitted))));
    return;
  }
  seen_[assignment.attempt.job] = Seen{assignment.attempt.attempt, ++seen_order_};
  if (seen_.size() > kRememberedJobs)
    seen_.erase(std::min_element(seen_.begin(), seen_.end(), [](const auto& a, const auto& b) {
      return a.second.order < b.second.order;
    }));
  Device& device = devices_[static_cast<size_t>(assignment.device)];
  if (device.phase == Phase::Free) return spawn(assignment.device, assignment, out);
  device.waiting = assignment;
  device.outcome_reported = true;
  stop(assignment.device, "the coordinator assigned its device anew", out);
}

void AgentState::spawn(int index, Assignment assignment, Commands& out) {
  Device fresh;
  fresh.phase = Phase::Starting;
  fresh.attempt = assignment.attempt;
  fresh.rank = assignment.rank;
  fresh.first_step = assignment.first_step;
  fresh.session = sessions_;
  devices_[static_cast<size_t>(index)] = std::move(fresh);
  out.push_back(Spawn{index, ExecutorAssignment{std::move(assignment), identity_.bind_address,
                                                identity_.worker, identity_.threads}});
}

void AgentState::on(TimePoint, const AssignRefused& event, Commands& out) {
  out.push_back(
      failed(event.attempt, event.rank,
             fmt::format("worker {} refused its assignment: {}", identity_.worker, message(event.why))));
}

AgentState::Device* AgentState::find(const AttemptKey& attempt, RankIndex rank) {
  for (Device& device : devices_) {
    if (device.phase != Phase::Free && device.attempt == attempt && device.rank == rank) return &device;
  }
  return nullptr;
}

void AgentState::on(TimePoint, const AbortReceived& event, Commands& out) {
  for (Device& device : devices_) {
    if (!device.waiting || device.waiting->attempt != event.attempt || device.waiting->rank != event.rank)
      continue;
    device.waiting.reset();
    out.push_back(Send{RankStopped{event.attempt, event.rank}});
    return;
  }
  Device* device = find(event.attempt, event.rank);
  if (device == nullptr) {  // it never came, or has been reported already: either way its device is free
    out.push_back(Send{RankStopped{event.attempt, event.rank}});
    return;
  }
  device->outcome_reported = true;
  stop(static_cast<int>(device - devices_.data()), event.reason, out);
}

// --- executors ---

void AgentState::stop(int index, const std::string& reason, Commands& out) {
  Device& device = devices_[static_cast<size_t>(index)];
  if (device.phase == Phase::Free || device.phase == Phase::Stopping) return;
  device.phase = Phase::Stopping;
  device.stop_reason = reason;
  device.kill_at.reset();
  out.push_back(Kill{index, reason});
}

void AgentState::fail_and_stop(int index, const std::string& reason, Commands& out) {
  Device& device = devices_[static_cast<size_t>(index)];
  if (!std::exchange(device.outcome_reported, true))
    out.push_back(failed(device.attempt, device.rank, reason, device.step));
  stop(index, reason, out);
}

void AgentState::on(TimePoint, const ExecutorSpawned& event, Commands& out) {
  Device& device = devices_[static_cast<size_t>(event.device)];
  if (event.status.ok()) {
    device.pid = event.pid;
    return;
  }
  out.push_back(failed(
      device.attempt, device.rank,
      fmt::format("worker {} could not start an executor: {}", identity_.worker, message(event.status))));
  out.push_back(Send{RankStopped{device.attempt, device.rank}});
  device = Device{};
}

void AgentState::on(TimePoint now, const ExecutorSaid& event, Commands& out) {
  // What an executor says after its end was decided no longer counts.
  if (devices_[static_cast<size_t>(event.device)].phase == Phase::Stopping) return;
  std::visit([&](const auto& frame) { said(now, event.device, frame, out); }, event.frame);
}

bool AgentState::speaks_for(int index, const AttemptKey& attempt, RankIndex rank, Commands& out) {
  const Device& device = devices_[static_cast<size_t>(index)];
  if (device.attempt == attempt && device.rank == rank) return true;
  fail_and_stop(index,
                fmt::format("the executor on worker {} spoke for another rank: {} expected, {} found",
                            identity_.worker, name(device.attempt, device.rank), name(attempt, rank)),
                out);
  return false;
}

void AgentState::said(TimePoint, int index, const RankReady& ready, Commands& out) {
  if (!speaks_for(index, ready.attempt, ready.rank, out)) return;
  Device& device = devices_[static_cast<size_t>(index)];
  if (device.phase != Phase::Starting) return fail_and_stop(index, "the executor was ready twice", out);
  device.phase = Phase::Running;
  device.step = device.first_step;
  device.fingerprint = ready.fingerprint;
  out.push_back(Send{RankReady{device.attempt, device.rank, device.pid, ready.fingerprint}});
}

void AgentState::said(TimePoint, int index, const StepReport& report, Commands& out) {
  if (!speaks_for(index, report.attempt, report.rank, out)) return;
  devices_[static_cast<size_t>(index)].step = report.step + 1;
  out.push_back(Send{report});
}

void AgentState::said(TimePoint, int index, const StepTrace& trace, Commands& out) {
  if (speaks_for(index, trace.attempt, trace.rank, out)) out.push_back(Send{trace});
}

void AgentState::said(TimePoint now, int index, const RankFinished& finished, Commands& out) {
  if (!speaks_for(index, finished.attempt, finished.rank, out)) return;
  Device& device = devices_[static_cast<size_t>(index)];
  if (std::exchange(device.outcome_reported, true)) return;
  device.phase = Phase::Finished;
  device.kill_at = now + limits_.exit_grace;
  out.push_back(Send{finished});
}

void AgentState::said(TimePoint now, int index, const RankFailed& failed_rank, Commands& out) {
  if (!speaks_for(index, failed_rank.attempt, failed_rank.rank, out)) return;
  Device& device = devices_[static_cast<size_t>(index)];
  if (std::exchange(device.outcome_reported, true)) return;
  device.kill_at = now + limits_.exit_grace;
  out.push_back(Send{failed_rank});
}

void AgentState::said(TimePoint, int index, const CheckpointWritten& written, Commands& out) {
  if (speaks_for(index, written.attempt, written.rank, out)) out.push_back(Send{written});
}

void AgentState::said(TimePoint, int index, const LogBatch& batch, Commands& out) {
  if (speaks_for(index, batch.attempt, batch.rank, out)) out.push_back(Send{batch});
}

// The key's rank is a number in a group, which the coordinator knows: it refuses those of other workers' ranks.
void AgentState::said(TimePoint, int index, const codec::BrokerPublish& call, Commands& out) {
  const Device& device = devices_[static_cast<size_t>(index)];
  if (speaks_for(index, call.key.attempt, device.rank, out)) out.push_back(CallBroker{index, call});
}

void AgentState::said(TimePoint, int index, const codec::BrokerLookUp& call, Commands& out) {
  const Device& device = devices_[static_cast<size_t>(index)];
  // It asks for what another rank published: only the attempt must be its own.
  if (speaks_for(index, call.key.attempt, device.rank, out)) out.push_back(CallBroker{index, call});
}

void AgentState::on(TimePoint, const ExecutorBroke& event, Commands& out) {
  fail_and_stop(
      event.device,
      fmt::format("the executor on worker {} broke its connection: {}", identity_.worker, message(event.why)),
      out);
}

void AgentState::on(TimePoint now, const ExecutorHungUp& event, Commands&) {
  Device& device = devices_[static_cast<size_t>(event.device)];
  if (device.phase == Phase::Free || device.phase == Phase::Stopping || device.kill_at) return;
  device.kill_at = now + limits_.hang_up_grace;
}

void AgentState::on(TimePoint, const ExecutorPrinted& event, Commands& out) {
  const Device& device = devices_[static_cast<size_t>(event.device)];
  if (device.phase == Phase::Free) return;
  out.push_back(Send{LogBatch{device.attempt, device.rank, event.lines, event.dropped}});
}

void AgentState::on(TimePoint, const ExecutorExited& event, Commands& out) {
  Device& device = devices_[static_cast<size_t>(event.device)];
  if (device.phase == Phase::Free) return;
  if (!device.outcome_reported) {
    std::string how = event.signal != 0 ? fmt::format("was killed by signal {}", event.signal)
                                        : fmt::format("exited with code {}", event.exit_code);
    std::string last = event.last_line.empty() ? "" : fmt::format("; its last line: {}", event.last_line);
    out.push_back(Send{RankFailed{device.attempt, device.rank, device.step,
                                  fmt::format("executor {} on worker {} {} {}{}", device.pid,
                                              identity_.worker, how, where(device.step), last),
                                  event.exit_code, event.signal}});
  }
  out.push_back(Send{RankStopped{device.attempt, device.rank}});
  std::optional<Assignment> waiting = std::move(device.waiting);
  device = Device{};
  if (waiting && !draining()) spawn(event.device, *std::move(waiting), out);
}

// --- the end, and time ---

void AgentState::on(TimePoint now, const DrainRequested& event, Commands& out) {
  if (draining_since_) return;
  draining_since_ = now;
  out.push_back(Send{DrainNotice{event.reason}});
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    if (device.phase == Phase::Free || device.phase == Phase::Finished) continue;
    fail_and_stop(static_cast<int>(i),
                  fmt::format("worker {} drains ({}); the rank was {}", identity_.worker, event.reason,
                              where(device.step)),
                  out);
  }
}

void AgentState::on(TimePoint now, const Tick&, Commands& out) {
  tick_session(now, out);
  tick_devices(now, out);
}

void AgentState::tick_devices(TimePoint now, Commands& out) {
  const bool orphaned = away_since_ && now - *away_since_ >= limits_.orphan_bound;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    const int index = static_cast<int>(i);
    if (device.phase == Phase::Free || device.phase == Phase::Stopping) continue;
    if (orphaned) {
      fail_and_stop(index,
                    fmt::format("worker {} had no coordinator for {} s; the rank was {}", identity_.worker,
                                to_seconds(limits_.orphan_bound), where(device.step)),
                    out);
    } else if (device.kill_at && now >= *device.kill_at) {
      fail_and_stop(
          index,
          fmt::format("the executor on worker {} closed its connection and did not end; the rank was {}",
                      identity_.worker, where(device.step)),
          out);
    }
  }
}

void AgentState::end_when_idle(TimePoint now, Commands& out) {
  if (ended_) return;
  const bool overdue = now - *draining_since_ >= limits_.drain_bound;
  const bool idle = busy_devices() == 0;
  if (overdue || (idle && session_ != Session::Open && session_ != Session::Closing)) {
    out.push_back(End{ok_status()});
    ended_ = true;
  } else if (idle && session_ == Session::Open && !std::exchange(finishing_session_, true)) {
    out.push_back(FinishSession{});
  }
}

TimePoint AgentState::next_tick(TimePoint now) const {
  TimePoint next = now + 1s;
  const auto at = [&next](TimePoint when) { next = std::min(next, when); };
  switch (session_) {
    case Session::Disconnected:
      at(connect_at_);
      break;
    case Session::Connecting:
      at(session_since_ + limits_.connect_timeout);
      break;
    case Session::Open:
      at(heartbeat_at_);
      at(last_heard_ + lease_ * leases_missed_);
      break;
    case Session::Closing:
      break;
  }
  for (const Device& device : devices_) {
    if (device.kill_at) at(*device.kill_at);
    if (away_since_ && device.phase != Phase::Free && device.phase != Phase::Stopping)
      at(*away_since_ + limits_.orphan_bound);
  }
  if (draining_since_) at(*draining_since_ + limits_.drain_bound);
  return std::max(next, now);
}

}  // namespace penstock::worker
