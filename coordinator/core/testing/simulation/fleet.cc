#include "coordinator/core/testing/simulation/fleet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <variant>

#include "coordinator/core/testing/simulation/jobs.h"
#include "coordinator/core/testing/world.h"
#include "plan/spec/rank_place.h"

namespace penstock::coordinator::testing {
namespace {

StepReport report_of(const Executor& executor, const plan::JobSpec& spec) {
  const Assignment& assignment = executor.assignment;
  StepReport report;
  report.attempt = assignment.attempt;
  report.rank = assignment.rank;
  report.step = executor.step;
  // Beside long steps a start is cheap, and layers may move.
  report.wall_seconds = spec.rebalance == plan::Rebalance::Off ? 0.1 : 4;
  const plan::RankPlace place = plan::place_of_rank(spec.parallel, assignment.rank);
  EXPECT_EQ(assignment.program.rank, place.pipeline_rank);
  if (place.pipeline_rank.value + 1 == spec.parallel.pipeline)
    report.loss = loss_at(executor.step) / spec.parallel.pipelines();  // exact: a power of two
  return report;
}

// Its clock tells its attempt.
StepTrace trace_of(const Executor& executor) {
  StepTrace trace;
  trace.attempt = executor.assignment.attempt;
  trace.rank = executor.assignment.rank;
  trace.step = executor.step;
  trace.clock = fmt::format("attempt-{:04}", trace.attempt.attempt);
  return trace;
}

RankFinished result_of(const Executor& executor, const plan::JobSpec& spec) {
  const Assignment& assignment = executor.assignment;
  return {assignment.attempt, assignment.rank, digests_of(spec, assignment.rank)};
}

bool has_all_peers(const Executor& executor, const State& state) {
  const AttemptKey& key = executor.assignment.attempt;
  const auto job = state.jobs.find(key.job);
  if (job == state.jobs.end() || !job->second.attempt) return true;
  const Attempt& attempt = *job->second.attempt;
  return attempt.number != key.attempt || attempt.assigned == attempt.ranks.size();
}

bool is_of_job(const WorkerMessage& message, const std::string& job) {
  const auto is_of_it = [&](const auto& said) {
    if constexpr (requires { said.attempt; }) return said.attempt.job == job;
    return false;
  };
  return std::visit(is_of_it, message);
}

// What fencing must tell apart.
void falsify(StepReport& report, Scene& scene) {
  switch (scene.below(5)) {
    case 0:
      report.attempt.attempt += scene.below(3) - 1;
      break;
    case 1:
      report.attempt.incarnation += 1;
      break;
    case 2:
      report.rank = RankIndex(scene.below(9) - 2);
      break;
    case 3:
      report.attempt.job = "nobody";
      break;
    default:
      break;
  }
}

}  // namespace

double loss_at(int64_t step) {
  return 5.0 / static_cast<double>(step + 1);
}

SimulatedFleet::SimulatedFleet(Scene& scene) : scene_(scene) {
  for (int w = 0; w < 5; ++w) {
    const std::string name = fmt::format("worker-{}", w);
    daemons_[name] = Daemon{.name = name,
                            .host = fmt::format("host-{}", w / 2),
                            .devices = w == 0 ? 2 : 1,
                            .incarnation = 100 * w + 1};
  }
}

Daemon& SimulatedFleet::any() {
  return std::next(daemons_.begin(), scene_.below(static_cast<int>(daemons_.size())))->second;
}

Daemon* SimulatedFleet::find(SessionId session) {
  for (auto& [name, daemon] : daemons_) {
    if (daemon.session == session) return &daemon;
  }
  return nullptr;
}

std::optional<Event> SimulatedFleet::open_session(Daemon& daemon) {
  if (daemon.session != 0 || daemon.draining) return std::nullopt;
  daemon.session = ++last_session_;
  return SessionOpened{daemon.session,
                       registration(daemon.name, daemon.incarnation, daemon.devices, daemon.host)};
}

std::optional<Event> SimulatedFleet::break_session(Daemon& daemon) {
  if (daemon.session == 0) return std::nullopt;
  const SessionId session = daemon.session;
  lose_session(daemon);
  if (scene_.one_in(3)) return std::nullopt;  // noticed when the lease ends or the daemon comes back
  return SessionClosed{session, "stream closed"};
}

std::optional<Event> SimulatedFleet::restart(Daemon& daemon) {
  const SessionId session = daemon.session;
  lose_session(daemon);
  daemon.draining = false;
  daemon.executors.clear();
  daemon.unsent.clear();
  ++daemon.incarnation;
  if (session == 0) return std::nullopt;
  return SessionClosed{session, "process ended"};
}

std::optional<Event> SimulatedFleet::deliver(Daemon& daemon) {
  if (daemon.session == 0) return std::nullopt;
  if (daemon.unsent.empty()) {
    if (daemon.draining && daemon.executors.empty()) return restart(daemon);
    return std::nullopt;
  }
  const WorkerMessage message = daemon.unsent.front();
  if (!scene_.one_in(20)) daemon.unsent.pop_front();  // else it comes twice
  const bool may_repeat = !std::holds_alternative<coordinator::Draining>(message);
  if (may_repeat && scene_.one_in(10)) old_messages_.push_back(message);
  if (old_messages_.size() > 20) old_messages_.pop_front();
  tell(daemon, message);
  return SessionSaid{daemon.session, message};
}

// A forged failure of a live rank is a failure; only what fencing can tell apart must change nothing.
std::optional<Event> SimulatedFleet::forge(Daemon& daemon) {
  if (daemon.session == 0 || old_messages_.empty()) return std::nullopt;
  const int place = scene_.below(static_cast<int>(old_messages_.size()));
  WorkerMessage message = old_messages_[static_cast<size_t>(place)];
  if (auto* report = std::get_if<StepReport>(&message)) falsify(*report, scene_);
  tell(daemon, message);
  return SessionSaid{daemon.session, std::move(message)};
}

void SimulatedFleet::drain(Daemon& daemon) {
  if (daemon.session == 0) return;
  daemon.draining = true;
  daemon.unsent.push_back(coordinator::Draining{"SIGTERM"});
  for (auto& [device, executor] : daemon.executors) executor.ending = true;
}

void SimulatedFleet::kill_executor(Daemon& daemon) {
  if (daemon.executors.empty()) return;
  const auto place = daemon.executors.begin();
  const Executor& executor = place->second;
  const AttemptKey key = executor.assignment.attempt;
  const RankIndex rank = executor.assignment.rank;
  if (!executor.is_over()) daemon.unsent.push_back(RankFailed{key, rank, executor.step, "ended", -1, 9});
  daemon.unsent.push_back(ExecutorStopped{key, rank});
  daemon.executors.erase(place);
}

void SimulatedFleet::work(Daemon& daemon, const State& state) {
  if (daemon.executors.empty()) return;
  const int chosen = scene_.below(static_cast<int>(daemon.executors.size()));
  const auto place = std::next(daemon.executors.begin(), chosen);
  Executor& executor = place->second;
  const AttemptKey key = executor.assignment.attempt;
  const RankIndex rank = executor.assignment.rank;
  if (executor.is_over()) {
    if (scene_.one_in(3)) return;  // a process takes its time to end
    daemon.unsent.push_back(ExecutorStopped{key, rank});
    daemon.executors.erase(place);
  } else if (!executor.ready) {
    executor.ready = true;
    daemon.unsent.push_back(RankReady{key, rank, 100, "sim"});
  } else if (has_all_peers(executor, state)) {
    train(daemon, executor);
  }
}

void SimulatedFleet::train(Daemon& daemon, Executor& executor) {
  const Assignment& assignment = executor.assignment;
  if (scene_.one_in(30))
    daemon.unsent.push_back(LogBatch{assignment.attempt, assignment.rank, {"a line", "another"}, 0});
  const std::optional<int64_t> slowest = slowest_peer(executor);
  if (!slowest) {  // a peer is gone: the transport fails
    daemon.unsent.push_back(
        RankFailed{assignment.attempt, assignment.rank, executor.step, "connection closed by peer", 1, 0});
    executor.failed = true;
    return;
  }
  const plan::JobSpec& spec = *parsed(assignment.spec_yaml);
  if (executor.step >= spec.train.steps) {
    executor.finished = true;
    daemon.unsent.push_back(result_of(executor, spec));
    return;
  }
  if (executor.step - *slowest >= 2) return;
  if (scene_.one_in(2)) daemon.unsent.push_back(trace_of(executor));
  daemon.unsent.push_back(report_of(executor, spec));
  ++executor.step;
  const int64_t every = spec.checkpoint.every;
  if (every != 0 && executor.step % every == 0) write_checkpoint(daemon, executor);
}

// Another thread says so: it may overtake the report of its step.
void SimulatedFleet::write_checkpoint(Daemon& daemon, const Executor& executor) {
  const CheckpointWritten written{executor.assignment.attempt, executor.assignment.rank, executor.step,
                                  scene_.one_in(10) ? "the disk is full" : ""};
  daemon.unsent.insert(daemon.unsent.end() - scene_.below(2), written);
}

// The least step among the ranks of the attempt; nothing when one of them is not there.
std::optional<int64_t> SimulatedFleet::slowest_peer(const Executor& executor) const {
  const AttemptKey& own = executor.assignment.attempt;
  int found = 0;
  int64_t slowest = executor.step;
  for (const auto& [name, daemon] : daemons_) {
    for (const auto& [device, other] : daemon.executors) {
      const AttemptKey& key = other.assignment.attempt;
      if (key.job != own.job || key.attempt != own.attempt) continue;
      if (other.failed) continue;  // its connections are closed
      ++found;
      slowest = std::min(slowest, other.ready ? other.step : 0);
    }
  }
  // Ranks that have reported everything may have left already.
  const auto ranks = static_cast<int>(executor.assignment.rank_hosts.size());
  const bool all_done = executor.step == parsed(executor.assignment.spec_yaml)->train.steps;
  return found == ranks || all_done ? std::optional(slowest) : std::nullopt;
}

void SimulatedFleet::end_orphans() {
  for (auto& [name, daemon] : daemons_) {
    if (daemon.session != 0 || scene_.now.time - daemon.away_since < std::chrono::seconds(30)) continue;
    while (!daemon.executors.empty()) kill_executor(daemon);
  }
}

void SimulatedFleet::lose_session(Daemon& daemon) {
  daemon.session = 0;
  daemon.away_since = scene_.now.time;
}

void SimulatedFleet::close(SessionId session) {
  if (Daemon* daemon = find(session)) lose_session(*daemon);
}

void SimulatedFleet::close_all() {
  for (auto& [name, daemon] : daemons_) {
    if (daemon.session != 0) lose_session(daemon);
  }
}

void SimulatedFleet::receive(Daemon& daemon, const CoordinatorMessage& message) {
  if (const auto* assignment = std::get_if<Assignment>(&message)) start(daemon, *assignment);
  if (const auto* end = std::get_if<Abort>(&message)) abort(daemon, *end);
}

void SimulatedFleet::start(Daemon& daemon, const Assignment& assignment) {
  const AttemptKey& key = assignment.attempt;
  scene_.tell("  {} device {} <- assign {} attempt {} rank {}", daemon.name, assignment.device, key.job,
              key.attempt, assignment.rank.value);
  EXPECT_EQ(key.incarnation, daemon.incarnation) << "assignment for another life of " << daemon.name;
  EXPECT_FALSE(daemon.executors.contains(assignment.device))
      << daemon.name << " device " << assignment.device << " is assigned to " << key.job << " while "
      << daemon.executors[assignment.device].assignment.attempt.job << " runs there";
  daemon.executors[assignment.device] = Executor{.assignment = assignment, .step = assignment.first_step};
}

void SimulatedFleet::abort(Daemon& daemon, const Abort& abort) {
  scene_.tell("  {} <- abort {} attempt {} rank {}", daemon.name, abort.attempt.job, abort.attempt.attempt,
              abort.rank.value);
  EXPECT_EQ(abort.attempt.incarnation, daemon.incarnation) << "abort for another life of " << daemon.name;
  for (auto& [device, executor] : daemon.executors) {
    if (executor.assignment.attempt != abort.attempt || executor.assignment.rank != abort.rank) continue;
    executor.ending = true;
    return;
  }
  daemon.unsent.push_back(ExecutorStopped{abort.attempt, abort.rank});
}

void SimulatedFleet::forget(const std::string& job) {
  const auto is_of_it = [&](const WorkerMessage& message) { return is_of_job(message, job); };
  std::erase_if(old_messages_, is_of_it);
  for (auto& [name, daemon] : daemons_) std::erase_if(daemon.unsent, is_of_it);
}

void SimulatedFleet::tell(const Daemon& daemon, const WorkerMessage& message) const {
  static constexpr std::array kNames = {"heartbeat", "ready", "step",     "trace",   "finished",
                                        "failed",    "log",   "draining", "stopped", "checkpoint"};
  const auto say = [&](const auto& said) {
    if constexpr (requires { said.attempt; }) {
      scene_.tell("  {} -> {} {} attempt {} incarnation {} rank {}", daemon.name, kNames[message.index()],
                  said.attempt.job, said.attempt.attempt, said.attempt.incarnation, said.rank.value);
    }
  };
  std::visit(say, message);
}

}  // namespace penstock::coordinator::testing
