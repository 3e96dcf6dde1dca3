#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "coordinator/core/internal/turn.h"
#include "proto/codec/codec.h"
#include "proto/codec/limits.h"

namespace penstock::coordinator {
namespace {

constexpr size_t kTraceBytesRead = size_t{4} << 20;  // some 200,000 works: tens of milliseconds

// Where the rank failed, unless its words say it already.
std::string step_text(const RankFailed& report) {
  if (report.step < 0) return " before its first step";
  const bool said = report.reason.find(fmt::format("step {}", report.step)) != std::string::npos;
  return said ? "" : fmt::format(" in step {}", report.step);
}

// What a worker says is bounded on the wire too; a core that is spoken to otherwise must not depend on it.
std::string bounded(const std::string& reason) {
  return one_line(utf8_cleaned(reason, codec::kLongestReason));
}

// What the daemon saw of the executor's end, unless its words say it already.
std::string how_it_ended(const RankFailed& report) {
  const auto said = [&](const std::string& words) { return report.reason.find(words) != std::string::npos; };
  if (report.signal != 0 && !said(fmt::format("signal {}", report.signal))) {
    const char* name = sigabbrev_np(report.signal);
    return fmt::format(" (killed by signal {}{})", report.signal, name ? fmt::format(", SIG{}", name) : "");
  }
  if (report.exit_code > 0 && !said(fmt::format("code {}", report.exit_code))) {
    return fmt::format(" (exit code {})", report.exit_code);
  }
  return "";
}

struct Said {
  Turn& turn;
  Worker& worker;
  SessionId session;

  // The live job that a report belongs to, or null: then it has been refused and counted.
  Job* fenced(const AttemptKey& key, RankIndex index) {
    Job* job = turn.state.find_job(key.job);
    const bool current = job && job->live() && job->attempt && job->attempt->number == key.attempt &&
                         key.incarnation == worker.incarnation && index.is_set() &&
                         index.value < static_cast<int>(job->attempt->ranks.size());
    if (current) {
      const RankState& rank = job->attempt->ranks[static_cast<size_t>(index.value)];
      if (rank.assigned && rank.worker == worker.name && rank.incarnation == key.incarnation) return job;
    }
    turn.refuse(Refusal::Stale);
    return nullptr;
  }

  static RankState& rank_of(Job& job, RankIndex rank) {
    return job.attempt->ranks[static_cast<size_t>(rank.value)];
  }

  // An executor that works for an attempt that is over, and that nobody has told so: it would go on for ever.
  void stop_stray(const AttemptKey& key, RankIndex rank) {
    if (key.incarnation != worker.incarnation || device_of(worker, key, rank)) return;
    turn.send(session, Abort{key, rank,
                             fmt::format("job {} attempt {} is not the current one", key.job, key.attempt)});
  }

  void release(const AttemptKey& key, RankIndex rank) {
    Device* device = device_of(worker, key, rank);
    if (!device) return;
    free_device(*device);
    executor_gone(turn, key);
  }

  void operator()(const Heartbeat& beat) { turn.send(session, HeartbeatAck{beat.sequence}); }

  void operator()(const Draining& message) {
    if (worker.draining) return;
    worker.draining = true;
    worker.reason = bounded(message.reason);
    worker.since_unix_ms = turn.now.unix_ms;
    turn.placing_due = true;
    turn.say("worker {} drains: {}", worker.name, worker.reason);
    for (size_t d = 0; d < worker.devices.size(); ++d) {
      const Device& device = worker.devices[d];
      if (device.use != DeviceUse::Held) continue;
      Job* job = turn.state.find_job(device.attempt.job);
      if (!job || !job->live() || rank_of(*job, device.rank).finished) continue;
      fail_attempt(turn, *job,
                   fmt::format("rank {} was stopped in step {}: worker {} drains: {}", device.rank.value,
                               job->attempt->window.next_of(device.rank), worker.name, worker.reason),
                   Cause::Worker);
    }
  }

  void operator()(const ExecutorStopped& message) {
    Device* device = device_of(worker, message.attempt, message.rank);
    if (!device) return;
    if (device->use == DeviceUse::Held) {
      Job* job = turn.state.find_job(message.attempt.job);
      PENSTOCK_CHECK(job && job->attempt, "device held by job {} that does not run", message.attempt.job);
      if (!rank_of(*job, message.rank).finished) {
        suspect(turn, *job,
                fmt::format("rank {} on {} stopped without a result in step {}", message.rank.value,
                            worker.name, job->attempt->window.next_of(message.rank)));
      }
    }
    release(message.attempt, message.rank);
  }

  void operator()(const RankReady& report) {
    Job* job = fenced(report.attempt, report.rank);
    if (!job) return stop_stray(report.attempt, report.rank);
    if (rank_of(*job, report.rank).ready) return turn.refuse(Refusal::Duplicate);
    if (Device* device = device_of(worker, report.attempt, report.rank))
      device->executor_pid = report.executor_pid;
    rank_ready(turn, *job, report);
  }

  void operator()(StepReport& report) {
    Job* job = fenced(report.attempt, report.rank);
    if (!job) return stop_stray(report.attempt, report.rank);
    if (!is_well_formed(*job, report.rank, report.step) || !names_stages_of(*job, report))
      return turn.refuse(Refusal::Malformed);
    const RankIndex rank = report.rank;
    const int64_t step = report.step;
    const bool loses_loss = holds_loss(*job, rank) && !report.loss && !job->spec->device.emulated();
    switch (job->attempt->window.add(std::move(report), steps_ahead(*job))) {
      case StepWindow::Added::Duplicate:
        return turn.refuse(Refusal::Duplicate);
      case StepWindow::Added::OutOfWindow:
        turn.refuse(Refusal::OutOfWindow);
        return fail_job(turn, *job,
                        fmt::format("rank {} on {} reported step {} while step {} is not committed yet: the "
                                    "coordinator keeps {} steps of reports",
                                    rank.value, worker.name, step, job->status.step, steps_ahead(*job)));
      case StepWindow::Added::Taken:
        break;
    }
    if (loses_loss) {
      return fail_job(turn, *job,
                      fmt::format("rank {} on {} holds the loss stage and reported step {} without a loss",
                                  rank.value, worker.name, step));
    }
    commit_steps(turn, *job);
  }

  void operator()(const StepTrace& trace) {
    Job* job = fenced(trace.attempt, trace.rank);
    if (!job) return;
    if (!is_well_formed(*job, trace.rank, trace.step)) return turn.refuse(Refusal::Malformed);
    auto bytes = std::make_shared<const std::string>(codec::encode(trace));
    job->measurements.add(trace);
    switch (job->traces.add(trace.step, trace.rank, job->definition.ranks, std::move(bytes))) {
      case Traces::Added::Duplicate:
        return turn.refuse(Refusal::Duplicate);
      case Traces::Added::Old:
        return turn.refuse(Refusal::OutOfWindow);
      case Traces::Added::Complete:
        add_wait_parts(*job, trace.step);
        return keep_trace(turn, *job, trace.step);
      case Traces::Added::Taken:
        return keep_trace(turn, *job, trace.step);
    }
  }

  // Without a flush the first rank of a pipeline is all of its microbatches behind the last.
  int64_t steps_ahead(const Job& job) const {
    const int64_t fair = turn.state.options.reports_ahead / job.definition.ranks;
    const int64_t apart =
        job.spec->is_asynchronous() ? job.spec->parallel.pipeline / job.spec->microbatches() : 0;
    return std::max<int64_t>(64, fair) + apart;
  }

  static bool holds_loss(const Job& job, RankIndex rank) {
    const std::vector<RankIndex>& ranks = job.attempt->loss_ranks;
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }

  static bool is_well_formed(Job& job, RankIndex index, int64_t step) {
    const RankState& rank = rank_of(job, index);
    return rank.ready && !rank.finished && step >= 0 && step < job.definition.steps;
  }

  // Of a step whose traces are all in. Very long ones are not read again: the turn must not take long.
  static void add_wait_parts(Job& job, int64_t step) {
    const TracedStep* traced = job.traces.find(step);
    if (!traced || traced->bytes > kTraceBytesRead) return;
    std::vector<StepTrace> ranks;
    for (const TraceBytes& bytes : traced->ranks) {
      StatusOr<StepTrace> rank = codec::decode_step_trace(*bytes);
      if (!rank.ok()) return;
      ranks.push_back(*std::move(rank));
    }
    job.measurements.add(wait_parts(ranks, job.spec->parallel, job.definition.stages));
  }

  // Each is a series of the metrics, or of what is kept of experts.
  static bool names_stages_of(const Job& job, const StepReport& report) {
    const auto is_known = [&](const auto& each) { return each.stage.value < job.definition.stages; };
    const plan::ModelSpec& model = job.spec->model;
    const auto has_experts = [&](const ExpertRows& each) {
      return is_known(each) && each.layer.value < model.num_hidden_layers &&
             each.first_expert + static_cast<int64_t>(each.rows.size()) <= model.moe.num_experts;
    };
    return std::all_of(report.stages.begin(), report.stages.end(), is_known) &&
           std::all_of(report.payloads.begin(), report.payloads.end(), is_known) &&
           std::all_of(report.expert_rows.begin(), report.expert_rows.end(), has_experts);
  }

  void operator()(RankFinished& report) {
    Job* job = fenced(report.attempt, report.rank);
    if (!job) return;
    const RankState& rank = rank_of(*job, report.rank);
    if (rank.finished) return turn.refuse(Refusal::Duplicate);
    if (!rank.ready) return turn.refuse(Refusal::Malformed);
    rank_finished(turn, *job, std::move(report));
  }

  void operator()(const CheckpointWritten& report) {
    Job* job = fenced(report.attempt, report.rank);
    if (!job) return;
    const Attempt& attempt = *job->attempt;
    const int64_t every = job->spec->checkpoint.every;
    const RankState& rank = rank_of(*job, report.rank);
    const bool expected = rank.ready && !rank.finished && every > 0 && report.step % every == 0 &&
                          report.step > attempt.first_step && report.step <= job->definition.steps &&
                          report.step - attempt.window.committed() <= steps_ahead(*job);
    if (!expected) return turn.refuse(Refusal::Malformed);
    if (report.step <= attempt.last_checkpoint) return turn.refuse(Refusal::Duplicate);
    checkpoint_written(turn, *job, report);
  }

  // An executor says so before it ends: its device is free only when it has stopped.
  void operator()(RankFailed& report) {
    Job* job = fenced(report.attempt, report.rank);
    if (!job) return;
    RankState& rank = rank_of(*job, report.rank);
    if (rank.finished)
      return turn.refuse(Refusal::Duplicate);  // its result is in; how it ended does not matter
    rank.dead = report.signal != 0;
    report.reason = bounded(report.reason);
    const std::string reason = fmt::format("rank {} on {} failed{}: {}{}", report.rank.value, worker.name,
                                           step_text(report), report.reason, how_it_ended(report));
    // A signal is a cause; a rank's own word may only be an effect of another rank's death.
    if (rank.dead) return fail_attempt(turn, *job, reason);
    suspect(turn, *job, reason);
  }

  void operator()(LogBatch& batch) {
    Job* job = turn.state.find_job(batch.attempt.job);
    const bool known = job && job->status.attempt == batch.attempt.attempt && batch.rank.is_set() &&
                       batch.rank.value < static_cast<int>(job->placed.size());
    if (!known) return turn.refuse(Refusal::Stale);
    const RankPlacement& placed = job->placed[static_cast<size_t>(batch.rank.value)];
    if (placed.worker != worker.name || placed.incarnation != worker.incarnation ||
        batch.attempt.incarnation != worker.incarnation) {
      return turn.refuse(Refusal::Stale);
    }
    const Options& options = turn.state.options;
    const LogLimits limits{options.log_lines_per_job, options.log_bytes_per_job, options.log_line_bytes};
    if (batch.dropped > 0) {
      batch.lines.insert(batch.lines.begin(),
                         fmt::format("({} lines were lost here: more than the worker keeps)", batch.dropped));
    }
    for (std::string& line : batch.lines) {
      job->log.add({turn.now.unix_ms, batch.rank, worker.name, std::move(line)}, limits);
    }
    if (!batch.lines.empty()) turn.emit(LogGrew{job->name()});
  }
};

}  // namespace

void on_said(Turn& turn, SessionSaid event) {
  Worker* worker = turn.state.fleet.of_session(event.session);
  if (!worker) return;
  worker->heard = turn.now.time;
  std::visit(Said{turn, *worker, event.session}, event.message);
}

}  // namespace penstock::coordinator
