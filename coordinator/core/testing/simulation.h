// A world that does everything to the core that the real one may, drawn from a seed, and checks after each
// event what must always hold. The same seed plays the same history.
//
// Simulated: worker daemons with executors (sessions that break, processes that restart, executors that die,
// reports in any interleaving, doubled and forged), a store that commits late and in groups, a planner that
// takes its time and moves layers between stages, a disk of checkpoints that fills up and loses some, clients that submit,
// cancel and look up, and a coordinator that crashes and starts again from what was durable.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/testing/world.h"
#include "plan/spec/rank_groups.h"
#include "plan/spec/same_training.h"
#include "plan/spec/split_source.h"

namespace penstock::coordinator::testing {

class Simulation {
 public:
  // Silent, or every line of the coordinator's log and every message of consequence on stdout.
  enum class Trace { Off, On };

  explicit Simulation(uint64_t seed, Trace trace = Trace::Off) : random_(seed), trace_(trace) {
    options_.jobs_live = 6;
    options_.weights_root = "/state/jobs";
    options_.jobs_ended = 4;
    options_.events_per_job = 6;
    options_.log_lines_per_job = 5;
    options_.look_ups_pending = 4;
    options_.workers = 6;
    options_.transactions_pending = 40;
    options_.answers_pending = 6;
    options_.lost_worker_kept = 60s;
    options_.assigned_at_once = 1;
    options_.losses_of_ended = 6;
    options_.stalled_after = 5s;
    options_.notes_per_job = 2;
    options_.question = {.steps = 1, .samples = 1};
    state_.options = options_;
    for (int w = 0; w < 5; ++w) {
      const std::string name = fmt::format("worker-{}", w);
      daemons_[name] = Daemon{.name = name,
                              .host = fmt::format("host-{}", w / 2),
                              .devices = w == 0 ? 2 : 1,
                              .incarnation = 100 * w + 1};
    }
  }

  // Plays `events` random events, then lets everything come to rest and checks that it did.
  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      one_event();
      check();
    }
    if (!::testing::Test::HasFailure()) come_to_rest();
  }

  int jobs_succeeded() const { return succeeded_; }
  int jobs_of_several_pipelines_succeeded() const { return succeeded_side_by_side_; }
  int crashes() const { return crashes_; }
  int assignments() const { return assignments_; }
  int64_t refusals() const { return refusals_; }
  int recuts() const { return recuts_; }  // jobs resumed with another number of ranks
  int placed_beside_cordons() const {
    return placed_beside_cordons_;
  }                                                 // attempts, while a worker was drained
  int traces_seen() const { return traces_seen_; }  // whole ones, after every event
  int moves() const { return moves_; }              // of layers, there or back
  int moves_undone() const { return moves_undone_; }
  int restarts_from_checkpoints() const { return restarts_from_checkpoints_; }
  int begun_with_another() const { return begun_with_another_; }  // ranks, with another job's checkpoint
  int succeeded_from_another() const { return succeeded_from_another_; }  // jobs that began so

 private:
  struct Executor {
    Assignment assignment;
    bool ready = false;
    bool finished = false;
    bool ending = false;  // told to stop
    bool failed = false;  // has said so; its process lives on for a while
    int64_t step = 0;     // that it does next
  };
  struct Daemon {
    std::string name;
    std::string host;
    int devices = 1;
    int64_t incarnation = 1;
    SessionId session = 0;
    TimePoint away_since{};  // without a session
    bool draining = false;
    std::map<int, Executor> executors{};  // by device
    std::deque<WorkerMessage> unsent{};   // in order; survives a broken session
  };

  template <typename... Args>
  void trace(fmt::format_string<Args...> format, Args&&... args) const {
    if (trace_ == Trace::Off) return;
    fmt::print("{} {}\n", now_.unix_ms % 10'000'000, fmt::format(format, std::forward<Args>(args)...));
  }
  void trace_message(const Daemon& daemon, const WorkerMessage& message) const {
    static constexpr std::array kNames = {"heartbeat", "ready", "step",     "trace",   "finished",
                                          "failed",    "log",   "draining", "stopped", "checkpoint"};
    const auto say = [&](const auto& said) {
      if constexpr (requires { said.attempt; }) {
        trace("  {} -> {} {} attempt {} incarnation {} rank {}", daemon.name, kNames[message.index()],
              said.attempt.job, said.attempt.attempt, said.attempt.incarnation, said.rank.value);
      }
    };
    std::visit(say, message);
  }

  // --- randomness ---
  int below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  bool one_in(int n) { return below(n) == 0; }
  Daemon& any_daemon() {
    return std::next(daemons_.begin(), below(static_cast<int>(daemons_.size())))->second;
  }

  // --- events ---
  void one_event() {
    const int dice = below(1000);
    if (dice < 60) return submit();
    if (dice < 75) return cancel();
    if (dice < 80) return pause_or_resume();
    if (dice < 84) return cordon_or_uncordon(any_daemon());
    if (dice < 180) return advance();
    if (dice < 300) return commit_some();
    if (dice < 340) return plan_one();
    if (dice < 360) return assign_one();
    if (dice < 450) return open_session(any_daemon());
    if (dice < 458) return break_session(any_daemon());
    if (dice < 464) return restart(any_daemon());
    if (dice < 720) return work(any_daemon());
    if (dice < 930) return deliver(any_daemon());
    if (dice < 945) return forge(any_daemon());
    if (dice < 951) return kill_executor(any_daemon());
    if (dice < 955) return drain(any_daemon());
    if (dice < 985) return use_broker(any_daemon());
    if (dice < 990) return crash();
    beat_all();
  }

  static constexpr int kKinds = 7;
  static constexpr int kRebalanced = 4;
  static constexpr int kFromAnother =
      5;  // and those after it: they begin with another job's checkpoint, of step 2

  // How a job is cut: pipeline, expert, data. There are six devices.
  struct Cut {
    int pipeline, expert, data;
    auto operator<=>(const Cut&) const = default;
  };
  static constexpr std::array<Cut, 7> kCuts = {
      {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {1, 2, 1}, {2, 2, 1}, {3, 1, 2}, {1, 2, 2}}};
  const Cut& any_cut() { return kCuts[static_cast<size_t>(below(one_in(2) ? 3 : kCuts.size()))]; }

  static const std::shared_ptr<const plan::JobSpec>& spec_of(const Cut& cut, int steps, int kind) {
    static const std::array<std::string, kKinds> kExtra = {
        "",
        "restart: {max: 2, no_progress_limit: 2}\n",
        "checkpoint: {every: 1}\nrestart: {max: 4, no_progress_limit: 2}\n",
        "checkpoint: {every: 2, directory: /elsewhere}\n",
        "checkpoint: {every: 1}\nrebalance: apply\n",
        "restart: {max: 2, no_progress_limit: 2, from: {path: /other/step-000000002, step: 2, samples: 8}}\n",
        "checkpoint: {every: 1}\n"
        "restart: {max: 4, no_progress_limit: 2, from: {path: /other/step-000000002, step: 2, samples: 8}}\n"};
    static std::map<std::tuple<Cut, int, int>, std::shared_ptr<const plan::JobSpec>> cache;
    auto& spec = cache[{cut, steps, kind}];
    if (!spec) {
      spec = job_spec({.name = cut == kCuts[0] ? "solo" : "crew",
                       .pipeline = cut.pipeline,
                       .expert = cut.expert,
                       .data = cut.data,
                       .has_experts = true,
                       .steps = steps,
                       .extra = kExtra[static_cast<size_t>(kind)]});
    }
    return spec;
  }
  static std::shared_ptr<const AttemptPlan> plan_of(const plan::JobSpec& spec) {
    static std::map<std::string, std::shared_ptr<const AttemptPlan>> cache;
    auto& plan = cache[spec.yaml];
    if (!plan) plan = *plan_attempt(spec);
    return plan;
  }

  void submit() {
    const ReplyId reply = ask();
    const std::string request = one_in(3) ? fmt::format("request-{}", below(5)) : "";
    const int kind = below(kKinds);
    const int steps = kind == kRebalanced ? 8 + below(8)  // the first two of an attempt do not count
                                          : 1 + below(4) + (kind < kFromAnother ? 0 : 2);
    tell(Submit{reply, "ann", request, spec_of(any_cut(), steps, kind)});
  }
  void cancel() {
    if (state_.jobs.empty()) return;
    tell(Cancel{ask(), std::next(state_.jobs.begin(), below(static_cast<int>(state_.jobs.size())))->first,
                "bob"});
  }
  void pause_or_resume() {
    if (state_.jobs.empty()) return;
    const std::string name =
        std::next(state_.jobs.begin(), below(static_cast<int>(state_.jobs.size())))->first;
    if (one_in(2)) return tell(Pause{ask(), name, "bob"});
    resume(name);
  }
  void cordon_or_uncordon(const Daemon& daemon) {
    const std::string name = one_in(10) ? "stranger" : daemon.name;
    if (one_in(2)) return tell(Drain{ask(), name, "bob"});
    tell(Uncordon{ask(), name, "bob"});
  }
  // As it was cut, or otherwise.
  void resume(const std::string& name) {
    const Job& job = state_.jobs.at(name);
    std::shared_ptr<const plan::JobSpec> other;
    const auto steps = static_cast<int>(job.definition.steps);
    const bool is_cut = job.spec && one_in(2);
    for (int kind = 0; is_cut && kind < kKinds && !other; ++kind) {
      if (steps <= 2 && kind >= kFromAnother) break;
      const plan::ParallelSpec& now = job.spec->parallel;
      if (spec_of({now.pipeline, now.expert, now.data}, steps, kind)->yaml == job.spec->yaml)
        other = spec_of(any_cut(), steps, kind);
    }
    const int before = job.definition.ranks;
    tell(Resume{ask(), name, "bob", other});
    recuts_ += job.definition.ranks != before;
  }
  void resume_all() {
    std::vector<std::string> paused;
    for (const auto& [name, job] : state_.jobs) {
      if (job.status.state == JobState::Paused && job.live() && job.admitted) paused.push_back(name);
    }
    for (const std::string& name : paused) resume(name);
  }
  void advance() {
    const Duration by = std::chrono::milliseconds(one_in(10) ? 3000 : below(300));
    now_.time += by;
    now_.unix_ms += std::chrono::duration_cast<std::chrono::milliseconds>(by).count();
    for (auto& [name, daemon] : daemons_) end_orphans(daemon);
    tell(Tick{});
  }
  // Without a coordinator executors go on for 30 s.
  void end_orphans(Daemon& daemon) {
    if (daemon.session != 0 || now_.time - daemon.away_since < 30s) return;
    while (!daemon.executors.empty()) kill_executor(daemon);
  }
  void lose_session(Daemon& daemon) {
    daemon.session = 0;
    daemon.away_since = now_.time;
  }
  void commit_some() {
    if (queued_.empty()) return;
    if (one_in(20)) {
      store_fails_ = true;
      return tell(StoreHealth{resource_exhausted("database or disk is full")});
    }
    if (store_fails_) tell(StoreHealth{ok_status()});
    store_fails_ = false;
    Ticket last = 0;
    for (int count = 1 + below(4); count > 0 && !queued_.empty(); --count) {
      for (const Write& write : queued_.front().writes) durable_.apply(write);
      last = queued_.front().ticket;
      queued_.pop_front();
    }
    tell(StoreDurable{last});
  }
  void assign_one() {
    if (!call_again_) return;
    call_again_ = false;
    tell(AssignMore{});
  }
  void plan_one() {
    if (!looking_.empty() && one_in(2)) return look_for_checkpoint();
    if (!keeping_.empty() && one_in(2)) return commit_checkpoint();
    if (!weighing_.empty() && one_in(2)) return commit_weights();
    if (!considering_.empty() && one_in(2)) return consider_split();
    if (planning_.empty()) return;
    const PlanAttempt wanted = planning_.front();
    planning_.pop_front();
    if (one_in(50)) {
      tell(AttemptPlanned{wanted.job, wanted.order, internal_error("the planner stumbled"), nullptr});
    } else {
      AttemptPlanned planned{wanted.job, wanted.order, ok_status(), plan_of(*wanted.spec)};
      find_checkpoint(wanted, planned);
      if (wanted.question && one_in(2)) planned.split = answer_to(*wanted.question);
      if (planned.split && planned.split->spec) planned.plan = plan_of(*planned.split->spec);
      watch_moves(wanted.job, [&] { tell(std::move(planned)); });
    }
  }

  void consider_split() {
    const ConsiderSplit wanted = considering_.front();
    considering_.pop_front();
    SplitConsidered answer{wanted.job, wanted.order, answer_to(wanted.question)};
    watch_moves(wanted.job, [&] { tell(std::move(answer)); });
  }

  // Whatever a planner may say.
  SplitAnswer answer_to(const SplitQuestion& question) {
    EXPECT_EQ(question.spec->rebalance, plan::Rebalance::Apply);
    EXPECT_EQ(question.attempts.back().stages, stage_items(*question.spec));
    if (question.spec->stages() == 1) return {.advice = SplitAdvice::Fixed, .because = "one stage"};
    if (one_in(4)) return {.because = "it is the best"};
    if (question.moves.file_before.empty()) return move_of(question);
    if (one_in(4)) return {.advice = SplitAdvice::Keep, .because = "it has paid"};
    return {.advice = SplitAdvice::Undo, .because = "it has not", .spec = parsed(question.moves.file_before)};
  }
  SplitAnswer move_of(const SplitQuestion& question) {
    const plan::JobSpec& spec = *question.spec;
    plan::Split split(1);
    const std::vector<plan::Item> items = plan::model_items(spec.model);
    const auto stages = static_cast<size_t>(spec.stages());
    for (size_t i = 0; i < items.size(); ++i) {  // a stage ends anywhere, and each of the rest has an item
      const size_t more = stages - split.size(), left = items.size() - i;
      if (!split.back().empty() && more > 0 && (left == more || one_in(2))) split.emplace_back();
      split.back().push_back(items[i]);
    }
    if (split.size() < stages) return {.because = "it has too few stages"};
    const std::string text = plan::to_text(split);
    const std::vector<std::string>& undone = question.moves.undone;
    const bool was_undone = std::find(undone.begin(), undone.end(), text) != undone.end();
    if (was_undone || split == spec.parallel.split) return {.because = "there is no better one"};
    return {.advice = SplitAdvice::Move,
            .because = "it is better",
            .split = text,
            .gain = 0.1 * below(10),
            .spec = parsed(*plan::with_split(spec.yaml, split))};
  }
  static const std::shared_ptr<const plan::JobSpec>& parsed(const std::string& yaml) {
    static std::map<std::string, std::shared_ptr<const plan::JobSpec>> cache;
    auto& spec = cache[yaml];
    if (!spec) spec = std::make_shared<const plan::JobSpec>(*plan::parse_job_spec(yaml));
    return spec;
  }

  // A move is nobody's failure.
  template <typename Happen>
  void watch_moves(const std::string& name, Happen happen) {
    const Job* job = state_.find_job(name);
    const Job before = job ? *job : Job{};
    happen();
    job = state_.find_job(name);
    if (!job || job->definition.spec_yaml == before.definition.spec_yaml) return;
    ++moves_;
    moves_undone_ += job->definition.moves.undone.size() > before.definition.moves.undone.size();
    EXPECT_EQ(job->status.restarts, before.status.restarts) << name;
    EXPECT_EQ(job->status.barren_attempts, before.status.barren_attempts) << name;
    EXPECT_EQ(job->losses, before.losses) << name;
  }

  // The newest one on record, unless it is damaged; where there is none, the one that the job's file names, which may have
  // been removed. Before the first step of its own the job's folder is empty.
  void find_checkpoint(const PlanAttempt& wanted, AttemptPlanned& planned) {
    const plan::StartSpec& from = wanted.spec->restart.from;
    if (!from.path.empty()) {
      if (one_in(30)) planned.status = not_found("{}: its job may have removed it", from.path);
      planned.first_step = from.step;
      planned.load_from = from.path;
      planned.other_job = "other";
      planned.fingerprint = one_in(2) ? "sim" : "another";
    }
    const std::string& directory = wanted.checkpoints.place.directory;
    if (directory.empty()) return;
    std::set<int64_t>& steps = checkpoints_[{directory, wanted.job}];
    if (wanted.checkpoints.latest_step == from.step) steps.clear();
    while (!steps.empty() && one_in(6)) {
      planned.refused.push_back(fmt::format("step {} is damaged", *steps.rbegin()));
      steps.erase(std::prev(steps.end()));
    }
    for (const int64_t step : steps) {
      if (step > wanted.checkpoints.latest_step) continue;
      planned.first_step = step;
      planned.load_from = fmt::format("{}/step-{:09}", directory, step);
      planned.other_job = "";
    }
  }

  void look_for_checkpoint() {
    const LookForCheckpoint wanted = looking_.front();
    looking_.pop_front();
    CheckpointFound found{wanted.job, 0, std::string(32, 'd')};
    for (const int64_t step : checkpoints_[{wanted.directory, wanted.job}]) {
      if (step <= wanted.latest_step) found.step = step;
    }
    tell(std::move(found));
  }

  void commit_checkpoint() {
    const CommitCheckpoint wanted = keeping_.front();
    keeping_.pop_front();
    const Status status = one_in(8) ? resource_exhausted("the disk is full") : ok_status();
    if (status.ok()) checkpoints_[{wanted.place.directory, wanted.job}].insert(wanted.step);
    watch_moves(wanted.job, [&] {
      tell(CheckpointCommitted{wanted.job, wanted.order, wanted.step, status, std::string(32, 'd')});
    });
  }

  // A commit may come after its job was cancelled, or fail.
  void commit_weights() {
    const CommitWeights wanted = weighing_.front();
    weighing_.pop_front();
    const Status status = one_in(20) ? resource_exhausted("the disk is full") : ok_status();
    EXPECT_EQ(wanted.weights.directory, "/state/jobs/" + wanted.job + "/weights");
    if (status.ok()) whole_.insert(wanted.weights.directory);
    tell(WeightsCommitted{wanted.job, wanted.order, wanted.weights, status});
  }

  void open_session(Daemon& daemon) {
    if (daemon.session != 0 || daemon.draining) return;
    daemon.session = ++last_session_;
    tell(SessionOpened{daemon.session,
                       registration(daemon.name, daemon.incarnation, daemon.devices, daemon.host)});
  }
  void break_session(Daemon& daemon) {
    if (daemon.session == 0) return;
    const SessionId session = daemon.session;
    lose_session(daemon);
    if (!one_in(3)) tell(SessionClosed{session, "stream closed"});
    // Otherwise nobody notices before the lease ends or the daemon comes back.
  }
  void restart(Daemon& daemon) {
    const SessionId session = daemon.session;
    lose_session(daemon);
    daemon.draining = false;
    daemon.executors.clear();
    daemon.unsent.clear();
    ++daemon.incarnation;
    if (session != 0) tell(SessionClosed{session, "process ended"});
  }
  void drain(Daemon& daemon) {
    if (daemon.session == 0) return;
    daemon.draining = true;
    daemon.unsent.push_back(coordinator::Draining{"SIGTERM"});
    for (auto& [device, executor] : daemon.executors) executor.ending = true;
  }
  void beat_all() {
    for (auto& [name, daemon] : daemons_) {
      if (daemon.session != 0) tell(SessionSaid{daemon.session, Heartbeat{1}});
    }
  }
  void deliver(Daemon& daemon) {
    if (daemon.session == 0) return;
    if (daemon.unsent.empty()) {
      if (daemon.draining && daemon.executors.empty()) restart(daemon);
      return;
    }
    const WorkerMessage message = daemon.unsent.front();
    if (!one_in(20)) daemon.unsent.pop_front();  // else it comes twice
    const bool may_repeat = !std::holds_alternative<coordinator::Draining>(message);
    if (may_repeat && one_in(10)) old_messages_.push_back(message);
    if (old_messages_.size() > 20) old_messages_.pop_front();
    trace_message(daemon, message);
    tell(SessionSaid{daemon.session, message});
  }
  // Something that was true once, or never, from anybody.
  void forge(Daemon& daemon) {
    if (daemon.session == 0 || old_messages_.empty()) return;
    WorkerMessage message = old_messages_[static_cast<size_t>(below(static_cast<int>(old_messages_.size())))];
    if (auto* report = std::get_if<StepReport>(&message)) {
      switch (below(5)) {
        case 0:
          report->attempt.attempt += below(3) - 1;
          break;
        case 1:
          report->attempt.incarnation += 1;
          break;
        case 2:
          report->rank = RankIndex(below(9) - 2);
          break;
        case 3:
          report->attempt.job = "nobody";
          break;
        default:
          break;
      }
    }
    // A forged failure of a live rank is a failure; only what fencing can tell apart must change nothing.
    trace_message(daemon, message);
    tell(SessionSaid{daemon.session, std::move(message)});
  }
  void kill_executor(Daemon& daemon) {
    if (daemon.executors.empty()) return;
    auto executor = daemon.executors.begin();
    const Assignment& assignment = executor->second.assignment;
    if (!executor->second.finished && !executor->second.ending && !executor->second.failed) {
      daemon.unsent.push_back(
          RankFailed{assignment.attempt, assignment.rank, executor->second.step, "ended", -1, 9});
    }
    daemon.unsent.push_back(ExecutorStopped{assignment.attempt, assignment.rank});
    daemon.executors.erase(executor);
  }

  // One thing that one executor does.
  void work(Daemon& daemon) {
    if (daemon.executors.empty()) return;
    auto place = std::next(daemon.executors.begin(), below(static_cast<int>(daemon.executors.size())));
    Executor& executor = place->second;
    const AttemptKey key = executor.assignment.attempt;
    const RankIndex rank = executor.assignment.rank;
    if (executor.ending || executor.finished || executor.failed) {
      if (one_in(3)) return;  // a process takes its time to end
      daemon.unsent.push_back(ExecutorStopped{key, rank});
      daemon.executors.erase(place);
      return;
    }
    if (!executor.ready) {
      executor.ready = true;
      daemon.unsent.push_back(RankReady{key, rank, 100, "sim"});
      return;
    }
    if (!is_assigned(executor)) return;  // it waits for its peers
    if (one_in(30)) daemon.unsent.push_back(LogBatch{key, rank, {"a line", "another"}, 0});
    const std::optional<int64_t> slowest = slowest_peer(executor);
    if (!slowest) {  // a peer is gone: the transport fails
      daemon.unsent.push_back(RankFailed{key, rank, executor.step, "connection closed by peer", 1, 0});
      executor.failed = true;
      return;
    }
    const plan::JobSpec& spec = *spec_by_yaml_.at(executor.assignment.spec_yaml);
    if (executor.step < spec.train.steps) {
      if (executor.step - *slowest >= 2) return;
      if (one_in(2)) daemon.unsent.push_back(trace_of(executor));
      daemon.unsent.push_back(report_of(executor, spec, executor.step++));
      const int64_t every = spec.checkpoint.every;
      if (every == 0 || executor.step % every != 0) return;
      const CheckpointWritten written{key, rank, executor.step, one_in(10) ? "the disk is full" : ""};
      // Another thread says so: it may overtake the report of its step.
      daemon.unsent.insert(daemon.unsent.end() - below(2), written);
      return;
    }
    executor.finished = true;
    daemon.unsent.push_back(result_of(executor, spec));
  }

  bool is_assigned(const Executor& executor) const {
    auto job = state_.jobs.find(executor.assignment.attempt.job);
    if (job == state_.jobs.end() || !job->second.attempt) return true;
    const Attempt& attempt = *job->second.attempt;
    return attempt.number != executor.assignment.attempt.attempt || attempt.assigned == attempt.ranks.size();
  }
  // The least step among the ranks of the attempt; nothing when one of them is not there.
  std::optional<int64_t> slowest_peer(const Executor& executor) {
    int found = 0;
    int64_t slowest = executor.step;
    for (const auto& [name, daemon] : daemons_) {
      for (const auto& [device, other] : daemon.executors) {
        const AttemptKey& key = other.assignment.attempt;
        if (key.job != executor.assignment.attempt.job || key.attempt != executor.assignment.attempt.attempt)
          continue;
        if (other.failed) continue;  // its connections are closed
        ++found;
        slowest = std::min(slowest, other.ready ? other.step : 0);
      }
    }
    // Ranks that have reported everything may have left already.
    const auto ranks = static_cast<int>(executor.assignment.rank_hosts.size());
    const bool all_done = executor.step == spec_by_yaml_.at(executor.assignment.spec_yaml)->train.steps;
    return found == ranks || all_done ? std::optional(slowest) : std::nullopt;
  }

  static double loss_at(int64_t step) { return 5.0 / static_cast<double>(step + 1); }
  static StepReport report_of(const Executor& executor, const plan::JobSpec& spec, int64_t step) {
    const Assignment& assignment = executor.assignment;
    StepReport report;
    report.attempt = assignment.attempt;
    report.rank = assignment.rank;
    report.step = step;
    // Beside long steps a start is cheap, and layers may move.
    report.wall_seconds = spec.rebalance == plan::Rebalance::Off ? 0.1 : 4;
    const plan::RankPlace place = plan::place_of_rank(spec.parallel, assignment.rank);
    EXPECT_EQ(assignment.program.rank, place.pipeline_rank);
    if (place.pipeline_rank.value + 1 == spec.parallel.pipeline)
      report.loss = loss_at(step) / spec.parallel.pipelines();  // exact: a power of two
    return report;
  }
  // Its clock tells its attempt.
  static StepTrace trace_of(const Executor& executor) {
    StepTrace trace;
    trace.attempt = executor.assignment.attempt;
    trace.rank = executor.assignment.rank;
    trace.step = executor.step;
    trace.clock = fmt::format("attempt-{:04}", trace.attempt.attempt);
    return trace;
  }
  static RankFinished result_of(const Executor& executor, const plan::JobSpec& spec) {
    const Assignment& assignment = executor.assignment;
    return {assignment.attempt, assignment.rank, digests_of(spec, assignment.rank)};
  }

  void use_broker(Daemon& daemon) {
    if (daemon.executors.empty()) return;
    const Assignment& assignment = daemon.executors.begin()->second.assignment;
    const plan::ParallelSpec& parallel = spec_by_yaml_.at(assignment.spec_yaml)->parallel;
    const plan::RankPlace place = plan::place_of_rank(parallel, assignment.rank);
    const plan::RankGroup group = one_in(2) ? plan::pipeline_group(parallel, place.pipeline)
                                            : plan::data_group(parallel, place.pipeline_rank);
    CommunicatorKey key{assignment.attempt, group.name, group.member(assignment.rank),
                        fmt::format("item-{}", below(2))};
    if (one_in(2)) return tell(Publish{ask(), key, "value"});
    key.rank = RankIndex(below(static_cast<int>(group.ranks.size())));
    const ReplyId reply = ask();
    tell(LookUp{reply, key, now_.time + 1s});
    if (one_in(4)) tell(LookUpAbandoned{reply});
  }

  void crash() {
    trace("the coordinator crashes");
    ++crashes_;
    count_refusals();
    state_ = State{};
    state_.options = options_;
    queued_.clear();
    planning_.clear();
    looking_.clear();
    weighing_.clear();
    considering_.clear();
    while (!keeping_.empty()) {  // what has begun may come to its end, and nobody hears of it
      const CommitCheckpoint& one = keeping_.front();
      if (one_in(2)) checkpoints_[{one.place.directory, one.job}].insert(one.step);
      keeping_.pop_front();
    }
    call_again_ = false;
    store_fails_ = false;
    unanswered_.clear();  // their callers see the connection break
    for (auto& [name, daemon] : daemons_) {
      if (daemon.session != 0) lose_session(daemon);
    }
    check_durable_moves();
    // What was shown before must be there again.
    tell(Restore{durable_.jobs(), durable_.cordons()});
  }

  // --- the core and what it wants ---
  ReplyId ask() {
    unanswered_.insert(++last_reply_);
    return last_reply_;
  }

  void tell(Event event) {
    for (Command& command : apply(state_, std::move(event), now_)) {
      std::visit([this](auto& one) { obey(one); }, command);
    }
  }

  void answered(ReplyId reply) {
    EXPECT_EQ(unanswered_.erase(reply), 1u) << "reply " << reply << " answered twice";
  }
  void obey(AnswerSubmit& command) {
    answered(command.reply);
    if (command.outcome.ok()) acknowledged_.insert(command.outcome->name);
  }
  void obey(AnswerControl& command) { answered(command.reply); }
  void obey(AnswerWorker& command) { answered(command.reply); }
  void obey(AnswerPublish& command) { answered(command.reply); }
  void obey(AnswerLookUp& command) { answered(command.reply); }
  void obey(Save& command) { queued_.push_back(std::move(command)); }
  void obey(PlanAttempt& command) {
    whole_.erase(command.weights.directory);  // those of a retired job of that name are moved away
    planning_.push_back(command);
  }
  void obey(ConsiderSplit& command) {
    EXPECT_TRUE(std::none_of(considering_.begin(), considering_.end(),
                             [&](const ConsiderSplit& other) { return other.order == command.order; }))
        << command.job << " is asked about twice at once";
    considering_.push_back(command);
  }
  void obey(CommitWeights& command) { weighing_.push_back(command); }
  void obey(CommitCheckpoint& command) {
    const StoredJob* stored = durable_.find(command.job);
    ASSERT_NE(stored, nullptr);
    EXPECT_GE(steps_of(*stored), command.step)
        << command.job << ": a checkpoint of steps that are not on record";
    EXPECT_FALSE(drafts_removed_.contains(command.place.marker))
        << command.job << ": a checkpoint whose draft was removed before";
    keeping_.push_back(command);
  }
  void obey(DiscardCheckpoint&) {}
  void obey(RemoveDrafts& command) { drafts_removed_.insert(command.place.marker); }
  void obey(LookForCheckpoint& command) { looking_.push_back(command); }
  void obey(DiscardWeights& command) { EXPECT_EQ(whole_.erase(command.weights.directory), 1u); }
  void obey(CallAgain&) {
    EXPECT_FALSE(call_again_);
    call_again_ = true;
  }
  void obey(JobChanged&) {}
  void obey(LogGrew&) {}
  void obey(Say& command) { trace("{}", command.line); }
  void obey(Observed& command) {
    const auto* retired = std::get_if<JobRetired>(&command.observation);
    if (!retired) return;
    acknowledged_.erase(retired->job);
    ended_.erase(retired->job);
    // Its name may be given again now. That is safe since its executors are gone and sessions are in order:
    // nothing of it is under way any more but what this world doubles.
    const auto is_of_it = [&](const WorkerMessage& message) { return job_of(message) == retired->job; };
    std::erase_if(old_messages_, is_of_it);
    for (auto& [name, daemon] : daemons_) std::erase_if(daemon.unsent, is_of_it);
  }
  static int64_t steps_of(const StoredJob& stored) {
    return stored.definition.first_step + static_cast<int64_t>(stored.losses.size());
  }
  static std::string job_of(const WorkerMessage& message) {
    const auto name = [](const auto& said) -> std::string {
      if constexpr (requires { said.attempt; }) return said.attempt.job;
      return "";
    };
    return std::visit(name, message);
  }
  void obey(CloseSession& command) {
    for (auto& [name, daemon] : daemons_) {
      if (daemon.session == command.session) lose_session(daemon);
    }
  }
  void obey(SendToWorker& command) {
    Daemon* daemon = nullptr;
    for (auto& [name, one] : daemons_) {
      if (one.session == command.session) daemon = &one;
    }
    if (!daemon) return;  // a broken session whose end has not been noticed
    std::visit([&](auto& message) { receive(*daemon, message); }, command.message);
  }
  void receive(Daemon&, Registered&) {}
  void receive(Daemon&, HeartbeatAck&) {}
  void receive(Daemon& daemon, Abort& abort) {
    trace("  {} <- abort {} attempt {} rank {}", daemon.name, abort.attempt.job, abort.attempt.attempt,
          abort.rank.value);
    EXPECT_EQ(abort.attempt.incarnation, daemon.incarnation) << "abort for another life of " << daemon.name;
    for (auto& [device, executor] : daemon.executors) {
      if (executor.assignment.attempt != abort.attempt || executor.assignment.rank != abort.rank) continue;
      executor.ending = true;
      return;
    }
    daemon.unsent.push_back(ExecutorStopped{abort.attempt, abort.rank});
  }
  void receive(Daemon& daemon, Assignment& assignment) {
    ++assignments_;
    const AttemptKey& key = assignment.attempt;
    trace("  {} device {} <- assign {} attempt {} rank {}", daemon.name, assignment.device, key.job,
          key.attempt, assignment.rank.value);
    EXPECT_EQ(key.incarnation, daemon.incarnation) << "assignment for another life of " << daemon.name;
    EXPECT_FALSE(daemon.executors.contains(assignment.device))
        << daemon.name << " device " << assignment.device << " is assigned to " << key.job << " while "
        << daemon.executors[assignment.device].assignment.attempt.job << " runs there";
    const StoredJob* stored = durable_.find(key.job);
    ASSERT_NE(stored, nullptr) << key.job << " was assigned before it was durable";
    EXPECT_GE(stored->status.attempt, key.attempt)
        << key.job << " was assigned before its attempt was durable";
    EXPECT_TRUE(
        started_.insert({key.job, stored->definition.sequence, key.attempt, assignment.rank.value}).second)
        << key.job << " attempt " << key.attempt << " rank " << assignment.rank.value
        << " was assigned twice";
    EXPECT_GE(steps_of(*stored), assignment.first_step)
        << key.job << " goes on from steps that a crash now would lose";
    EXPECT_EQ(assignment.first_step == 0, assignment.load_from.empty());
    EXPECT_EQ(assignment.split, parsed(assignment.spec_yaml)->parallel.split);
    const auto [known, is_first] =
        files_.try_emplace({key.job, stored->definition.sequence, key.attempt}, assignment.spec_yaml);
    EXPECT_EQ(known->second, assignment.spec_yaml)
        << key.job << ": ranks of one attempt with different files";
    EXPECT_GE(assignment.first_step, stored->definition.first_step);
    const bool is_its_own = assignment.first_step > stored->definition.first_step;
    restarts_from_checkpoints_ += is_its_own;
    begun_with_another_ += assignment.first_step > 0 && !is_its_own;
    EXPECT_EQ(assignment.load_from.starts_with("/other/"), assignment.first_step > 0 && !is_its_own)
        << assignment.load_from;
    spec_by_yaml_[assignment.spec_yaml] = state_.jobs.at(key.job).spec;
    const int64_t first_step = assignment.first_step;
    daemon.executors[assignment.device] = Executor{.assignment = std::move(assignment), .step = first_step};
  }

  // --- what must always hold ---
  void check() {
    check_jobs();
    check_devices();
    check_bounds();
    check_weights();
    check_recovery();
    check_traces();
    check_moves();
    check_cordons();
  }

  void check_moves() {
    for (const auto& [name, job] : state_.jobs) {
      if (!job.spec || job.ended()) continue;
      const SplitMoves& moves = job.definition.moves;
      EXPECT_EQ(job.definition.spec_yaml, job.spec->yaml) << name;
      EXPECT_LE(moves.undone.size(), kMostUndone) << name;
      EXPECT_LE(considering_.size(), 6u);
      const std::string split = plan::to_text(job.spec->parallel.split);
      EXPECT_EQ(std::count(moves.undone.begin(), moves.undone.end(), split), 0)
          << name << " is back at " << split;
    }
  }
  // By what is durable: with a crash now a job has one of its files, and knows the one before.
  void check_durable_moves() {
    for (const StoredJob& job : durable_.jobs()) {
      if (job.definition.moves.file_before.empty()) continue;
      EXPECT_TRUE(plan::differ_by_split_alone(*parsed(job.definition.moves.file_before),
                                              *parsed(job.definition.spec_yaml)))
          << job.definition.name;
    }
  }

  // Whatever is placed in an event is placed on workers that take work then.
  void check_cordons() {
    const std::map<std::string, Cordon>& cordons = state_.fleet.cordons;
    EXPECT_LE(cordons.size(), options_.workers);
    int64_t newest = newest_placement_;
    for (const auto& [name, job] : state_.jobs) {
      if (!job.attempt || job.last_order <= newest_placement_) continue;
      newest = std::max(newest, job.last_order);
      for (const RankPlacement& rank : job.placed)
        EXPECT_FALSE(cordons.contains(rank.worker))
            << name << " is placed on " << rank.worker << ", which is drained";
      placed_beside_cordons_ += !cordons.empty();
    }
    newest_placement_ = newest;
  }

  void check_traces() {
    for (const auto& [name, job] : state_.jobs) {
      for (const int64_t step : job.traces.complete()) {
        const std::vector<TraceBytes>& ranks = job.traces.find(step)->ranks;
        EXPECT_EQ(static_cast<int>(ranks.size()), job.definition.ranks) << name;
        std::set<std::string> attempts;
        for (const TraceBytes& bytes : ranks) attempts.insert(bytes->substr(bytes->find("attempt-"), 12));
        EXPECT_EQ(attempts.size(), 1u) << name;
        ++traces_seen_;
      }
    }
  }

  void check_recovery() {
    for (const auto& [name, job] : state_.jobs) {
      const bool waits = job.status.state == JobState::Recovering || job.status.state == JobState::Queued ||
                         job.status.state == JobState::Placing || job.status.state == JobState::Paused;
      EXPECT_FALSE(waits && job.attempt.has_value()) << name;
      if (job.spec && !job.ended()) {
        EXPECT_LE(job.status.restarts, job.spec->restart.max) << name;
        EXPECT_LE(job.status.barren_attempts, job.spec->restart.no_progress_limit) << name;
      }
      if (!job.attempt) continue;
      EXPECT_LE(static_cast<int64_t>(job.attempt->pending_checkpoints.size()), job.definition.steps) << name;
      EXPECT_LE(job.status.durable_step, job.status.step) << name;
      EXPECT_GE(job.status.step, job.definition.first_step) << name;
    }
  }

  void check_jobs() {
    for (const std::string& name : acknowledged_) {
      EXPECT_TRUE(durable_.find(name)) << "acknowledged job " << name << " would be lost by a crash now";
      EXPECT_TRUE(state_.jobs.contains(name)) << "acknowledged job " << name << " is lost";
    }
    for (const JobView& view : view_jobs(state_, now_.unix_ms)) {
      const int64_t sequence = state_.jobs.at(view.name).definition.sequence;
      auto known = ended_.find(view.name);
      if (known != ended_.end() && known->second.sequence == sequence) {
        EXPECT_EQ(view.state, known->second.state) << view.name << " has ended and changed its state";
        EXPECT_EQ(view.weights_digest, known->second.digest);
      } else if (view.ended()) {
        note_end(view, sequence);
      }
    }
  }

  void note_end(const JobView& view, int64_t sequence) {
    ended_[view.name] = {view.state, view.weights_digest, sequence};
    const StoredJob* stored = durable_.find(view.name);
    ASSERT_TRUE(stored) << view.name;
    EXPECT_EQ(stored->status.state, view.state)
        << "the end of " << view.name << " was shown before it was durable";
    if (view.state != JobState::Succeeded) return;
    ++succeeded_;
    succeeded_side_by_side_ += plan::parse_job_spec(stored->definition.spec_yaml)->parallel.pipelines() > 1;
    std::vector<double> expected;
    for (int64_t step = view.first_step; step < view.steps; ++step) expected.push_back(loss_at(step));
    succeeded_from_another_ += view.first_step > 0;
    const Job& job = state_.jobs.at(view.name);
    if (job.losses_in_store > 0) {
      EXPECT_EQ(job.losses_in_store, expected.size()) << view.name;
      EXPECT_TRUE(job.losses.empty()) << view.name;
    } else {
      EXPECT_EQ(job.losses, expected) << view.name;
    }
    EXPECT_EQ(stored->losses, expected) << view.name;
    EXPECT_EQ(view.weights_digest.size(), 32u);
  }

  // That a device has one rank at most is checked where it is assigned; here, that what is held is held for a
  // rank that lives and was placed there.
  void check_devices() {
    for (const auto& [name, worker] : state_.fleet.workers) {
      for (const Device& device : worker.devices) {
        if (device.use != DeviceUse::Held || !worker.is_open()) continue;
        const Job* job = state_.find_job(device.attempt.job);
        ASSERT_TRUE(job && job->attempt)
            << name << " holds a device for " << device.attempt.job << ", which does not run";
        EXPECT_EQ(job->attempt->number, device.attempt.attempt);
        const RankState& rank = job->attempt->ranks.at(static_cast<size_t>(device.rank.value));
        EXPECT_EQ(rank.worker, name);
        EXPECT_EQ(rank.device, device.slot.index);
        EXPECT_EQ(rank.incarnation, worker.incarnation);
      }
    }
  }

  void check_weights() {
    for (const auto& [name, job] : state_.jobs) {
      if (job.status.state != JobState::Succeeded) continue;
      EXPECT_TRUE(whole_.contains("/state/jobs/" + name + "/weights")) << name;
    }
  }

  void check_bounds() {
    size_t leaving = 0;  // ended, and kept until their executors are gone
    for (const std::string& name : state_.ended) leaving += state_.jobs.at(name).executors_left > 0;
    EXPECT_LE(state_.ended.size(), options_.jobs_ended + leaving);
    size_t losses = 0;
    for (const std::string& name : state_.ended) losses += state_.jobs.at(name).losses.size();
    EXPECT_LE(losses, options_.losses_of_ended);
    EXPECT_LE(state_.jobs.size() - state_.ended.size(), options_.jobs_live);
    EXPECT_LE(state_.queue.size(), options_.jobs_live);
    EXPECT_LE(state_.assigning.size(), 6u);
    EXPECT_LE(state_.answers.size(), options_.answers_pending);
    EXPECT_LE(state_.names_by_request.size(), state_.jobs.size());
    EXPECT_LE(state_.fleet.workers.size(), options_.workers);
    EXPECT_LE(state_.fleet.sessions.size(), options_.workers);
    EXPECT_LE(state_.broker.pending(), options_.look_ups_pending);
    EXPECT_LE(state_.broker.attempts(), options_.jobs_live);
    // Each job has at most a few transitions, one progress save and some answers under way.
    EXPECT_LE(state_.store.held(), 20 * state_.jobs.size() + options_.transactions_pending);
    for (const auto& [name, job] : state_.jobs) {
      EXPECT_LE(job.events.size(), options_.events_per_job);
      EXPECT_LE(job.log.lines(), options_.log_lines_per_job);
      EXPECT_LE(static_cast<int64_t>(job.losses.size()), job.definition.steps - job.definition.first_step);
      EXPECT_LE(job.attempt ? job.attempt->window.waiting() : 0, 64u);
    }
  }

  // --- the end ---
  // With healthy workers, a store that commits and enough time, every job must end and every device be free.
  void come_to_rest() {
    for (const auto& [name, daemon] : daemons_) tell(Uncordon{ask(), name, "bob"});
    for (auto& [name, daemon] : daemons_) {
      if (daemon.draining) restart(daemon);
    }
    for (int round = 0; round < 2000; ++round) {
      if (is_at_rest()) return check_rest();
      for (auto& [name, daemon] : daemons_) {
        open_session(daemon);
        work(daemon);
        if (daemon.session != 0 && !daemon.unsent.empty()) {
          const WorkerMessage message = std::move(daemon.unsent.front());
          daemon.unsent.pop_front();
          tell(SessionSaid{daemon.session, message});
        }
        if (daemon.session != 0) tell(SessionSaid{daemon.session, Heartbeat{1}});
      }
      resume_all();
      commit_some();
      plan_one();
      assign_one();
      now_.time += 200ms;
      now_.unix_ms += 200;
      tell(Tick{});
      check();
      if (::testing::Test::HasFailure()) return;
    }
    ADD_FAILURE() << "no rest:" << what_is_left();
  }

  void check_rest() {
    check();
    for (const auto& [name, job] : state_.jobs) {
      const StoredJob* stored = durable_.find(name);
      ASSERT_TRUE(stored) << name;
      EXPECT_EQ(stored->events, std::vector<JobEventView>(job.events.begin(), job.events.end())) << name;
      EXPECT_EQ(stored->next_event, job.next_event) << name;
      std::vector<int64_t> traced;
      for (const auto& [step, ranks] : stored->traces) traced.push_back(step);
      EXPECT_EQ(traced, job.traces.complete()) << name;
    }
    EXPECT_EQ(durable_.cordons(), state_.fleet.cordons);
    EXPECT_TRUE(state_.assigning.empty());
    EXPECT_TRUE(state_.answers.empty());
  }

  bool is_at_rest() const {
    return state_.ended.size() == state_.jobs.size() && queued_.empty() && unanswered_.empty() &&
           take_census(state_).devices_free == 6 && state_.broker.pending() == 0;
  }

  std::string what_is_left() const {
    std::string text;
    for (const JobView& view : view_jobs(state_, 0)) {
      if (!view.ended()) text += fmt::format("\n{} {}: {}", view.name, to_string(view.state), view.reason);
    }
    for (const WorkerView& worker : worker_views(state_.fleet)) {
      text += fmt::format("\n{} {} {} {}", worker.name, worker.device, worker.state, worker.job);
    }
    return text + fmt::format("\n{} answers, {} saves missing", unanswered_.size(), queued_.size());
  }

  void count_refusals() {
    for (int64_t count : state_.refused) refusals_ += count;
  }

  struct End {
    JobState state = JobState::Queued;
    std::string digest{};
    int64_t sequence = 0;
  };

  std::mt19937_64 random_;
  Trace trace_;
  Options options_;
  State state_;
  Now now_{TimePoint{} + 1h, 1'700'000'000'000};
  std::map<std::string, Daemon> daemons_;
  std::deque<Save> queued_;  // by the store, not durable yet
  Archive durable_;
  std::deque<PlanAttempt> planning_;
  std::deque<CommitWeights> weighing_;
  std::deque<CommitCheckpoint> keeping_;
  std::deque<ConsiderSplit> considering_;
  std::map<std::tuple<std::string, int64_t, int64_t>, std::string>
      files_;  // by job, its sequence and attempt
  std::deque<LookForCheckpoint> looking_;
  std::map<std::pair<std::string, std::string>, std::set<int64_t>>
      checkpoints_;                       // by directory and job: steps
  std::set<std::string> drafts_removed_;  // attempts, by the markers of their folders
  std::set<std::string> whole_;           // folders of weights that are committed
  std::set<ReplyId> unanswered_;
  bool call_again_ = false;  // the core wants an AssignMore
  bool store_fails_ = false;
  std::deque<WorkerMessage> old_messages_;
  std::map<std::string, std::shared_ptr<const plan::JobSpec>> spec_by_yaml_;
  std::set<std::string> acknowledged_;
  std::map<std::string, End> ended_;
  std::set<std::tuple<std::string, int64_t, int64_t, int>> started_;  // job, its sequence, attempt, rank
  SessionId last_session_ = 0;
  ReplyId last_reply_ = 0;
  int succeeded_ = 0;
  int succeeded_side_by_side_ = 0;
  int crashes_ = 0;
  int assignments_ = 0;
  int restarts_from_checkpoints_ = 0;
  int begun_with_another_ = 0;
  int succeeded_from_another_ = 0;
  int placed_beside_cordons_ = 0;
  int64_t newest_placement_ = 0;  // order of the attempts that check_cordons has seen
  int recuts_ = 0;
  int traces_seen_ = 0;
  int moves_ = 0;
  int moves_undone_ = 0;
  int64_t refusals_ = 0;
};

}  // namespace penstock::coordinator::testing
