// From a queued job to one that runs: placing, planning, assigning; and from its last rank to its result.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "base/utf8.h"
#include "coordinator/core/digest/weights_digest.h"
#include "coordinator/core/internal/kept_seats.h"
#include "coordinator/core/internal/turn.h"
#include "coordinator/core/placement/placement.h"
#include "proto/codec/limits.h"

namespace penstock::coordinator {
namespace {

// Where the attempt's weights go; emulated devices make none. The marker is its own: what is left of another attempt, on
// any host, is not taken for it.
WeightsPlace weights_place(const Turn& turn, const Job& job, const Attempt& attempt) {
  const std::string& root = turn.state.options.weights_root;
  if (root.empty() || job.spec->device.emulated()) return {};
  return {.directory = fmt::format("{}/{}/weights", root, job.name()),
          .marker = fmt::format(".attempt-{}-{}-{}", attempt.number, attempt.order, turn.now.unix_ms)};
}

PlacementRequest placement_request(const Job& job) {
  PlacementRequest request{.job = job.name(),
                           .kind = job.spec->device.kind,
                           .ranks = job.definition.ranks,
                           .group = job.spec->parallel.expert};
  request.one_host = job.spec->parallel.p2p == plan::P2pMode::OneSided;
  if (job.spec->device.emulated()) {  // the host's clock times its messages
    request.one_host = true;
    request.one_host_reason = "emulated devices share a clock";
  }
  return request;
}

WeightsPlace checkpoints_place(const Turn& turn, const Job& job, const WeightsPlace& weights) {
  const std::string directory = checkpoints_directory(turn.state.options, job);
  return directory.empty() ? WeightsPlace{} : WeightsPlace{directory, weights.marker};
}

// Reserves the seats and starts what must come before the assignment: the number on disk, and the programs.
void begin_attempt(Turn& turn, Job& job, const Placement& placement) {
  Attempt attempt;
  attempt.number = ++job.status.attempt;
  attempt.order = turn.state.next_placement++;
  attempt.began = std::exchange(job.moving_since, std::nullopt).value_or(turn.now.time);
  attempt.weights = weights_place(turn, job, attempt);
  attempt.checkpoints = checkpoints_place(turn, job, attempt.weights);
  attempt.durable_before = job.status.durable_step;
  job.last_checkpoints = attempt.checkpoints;
  if (job.status.started_unix_ms == 0) job.status.started_unix_ms = turn.now.unix_ms;
  job.traces.forget_incomplete();
  job.placed.clear();
  for (size_t r = 0; r < placement.seats.size(); ++r) {
    const Seat& seat = placement.seats[r];
    const RankIndex rank(static_cast<int64_t>(r));
    Worker& worker = *turn.state.fleet.find(seat.worker);
    for (Device& device : worker.devices) {
      if (device.slot.index == seat.device)
        hold(device, {job.name(), attempt.number, worker.incarnation}, rank);
    }
    RankState state;
    state.worker = seat.worker;
    state.incarnation = worker.incarnation;
    state.device = seat.device;
    attempt.ranks.push_back(std::move(state));
    job.placed.push_back({rank, seat.worker, worker.incarnation, seat.device});
  }
  job.executors_left = static_cast<int>(job.placed.size());
  job.last_order = attempt.order;
  job.attempt = std::move(attempt);

  std::vector<Write> writes = move_job(turn, job, JobState::Preparing, placement.reason, "coordinator");
  writes.push_back(PutAttempt{job.name(), job.status.attempt, job.attempt->order, job.placed});
  const Ticket ticket = turn.save(std::move(writes));
  turn.after(ticket, StartAttempt{job.name(), job.status.attempt});
  turn.emit(PlanAttempt{.job = job.name(),
                        .order = job.attempt->order,
                        .spec = job.spec,
                        .weights = job.attempt->weights,
                        .checkpoints = {.place = job.attempt->checkpoints,
                                        .is_own = !job.definition.checkpoints.starts_with('/'),
                                        .latest_step = job.status.step},
                        .question = question_on_split(job)});
}

Job* live_attempt(State& state, const std::string& name, int64_t number) {
  Job* job = state.find_job(name);
  return job && job->live() && job->attempt && job->attempt->number == number ? job : nullptr;
}

std::string readiness(const Attempt& attempt) {
  if (attempt.ranks.size() == 1) return "its rank is not ready yet";
  return fmt::format("{} of {} ranks are ready", attempt.ready, attempt.ranks.size());
}

// An attempt that is over has no rank left to tell: what waits is bounded by the attempts that live.
void forget_attempts_that_are_over(State& state) {
  std::erase_if(state.assigning, [&](const Assigning& one) {
    const Job* job = state.find_job(one.job);
    return !job || !job->live() || !job->attempt || job->attempt->order != one.order;
  });
}

void assign_when_ready(Turn& turn, Job& job) {
  Attempt& attempt = *job.attempt;
  if (!attempt.durable || !attempt.plan) return;
  std::vector<std::string> workers;
  for (const RankState& rank : attempt.ranks) {
    attempt.hosts.push_back(turn.state.fleet.find(rank.worker)->host);
    workers.push_back(rank.worker);
  }
  job.stages = planned_stages(*job.spec, *attempt.plan, workers);
  job.memory = planned_memory(*attempt.plan);
  job.memory_saved = false;
  job.measurements.begin(attempt.number, job.definition.schedule, stage_items(*job.spec), job.stages.size());
  attempt.loss_ranks = attempt.plan->loss_ranks;
  attempt.validation_loss_ranks = attempt.plan->validation_loss_ranks;
  const bool turn_is_due = !turn.state.assigning.empty();  // a CallAgain is under way: it goes on with all
  forget_attempts_that_are_over(turn.state);
  turn.state.assigning.push_back({job.name(), attempt.order});
  set_reason(turn, job, readiness(attempt));
  if (!turn_is_due) assign_more(turn);
}

// Tells the next ranks; true when all have been.
bool assign_some(Turn& turn, Job& job) {
  Attempt& attempt = *job.attempt;
  const size_t end = std::min(attempt.ranks.size(), attempt.assigned + turn.state.options.assigned_at_once);
  for (size_t& r = attempt.assigned; r < end; ++r) {
    RankState& rank = attempt.ranks[r];
    const Worker& worker = *turn.state.fleet.find(rank.worker);
    PENSTOCK_CHECK(worker.is_open() && worker.incarnation == rank.incarnation,
                   "job {} rank {} outlived its worker {}", job.name(), r, rank.worker);
    turn.send(worker.session, make_assignment(*job.spec, *attempt.plan,
                                              {.attempt = {job.name(), attempt.number, rank.incarnation},
                                               .rank = RankIndex(static_cast<int64_t>(r)),
                                               .device = rank.device,
                                               .first_step = attempt.first_step,
                                               .load_from = attempt.load_from,
                                               .rank_hosts = attempt.hosts,
                                               .weights = attempt.weights,
                                               .checkpoints = attempt.checkpoints}));
    rank.assigned = true;
  }
  if (end < attempt.ranks.size()) return false;
  attempt.plan.reset();
  attempt.hosts.clear();
  return true;
}

// One attempt has one arithmetic: with two, the bits of its result would depend on where its ranks were placed.
std::optional<std::string> different_arithmetic(const Attempt& attempt, RankIndex fresh) {
  const RankState& rank = attempt.ranks[static_cast<size_t>(fresh.value)];
  for (size_t r = 0; r < attempt.ranks.size(); ++r) {
    const RankState& other = attempt.ranks[r];
    if (!other.ready || other.fingerprint == rank.fingerprint) continue;
    return message(failed_precondition(
        "the ranks of an attempt must compute alike, or its result would depend on their placement: expected "
        "\"{}\" as rank {} on {} has it, found \"{}\" of rank {} on {}",
        other.fingerprint, r, other.worker, rank.fingerprint, fresh.value, rank.worker));
  }
  return std::nullopt;
}

// Of the failure that a rank has told of; nothing while it is too early to say. A machine that dies without a word is felt by
// its peers at once and missed when its lease ends: before a split is blamed, all its workers must have been heard.
std::optional<Cause> settled_cause(const Turn& turn, const Job& job) {
  const std::optional<Suspicion>& suspicion = job.attempt->suspicion;
  if (!suspicion || turn.now.time < suspicion->decide_at) return std::nullopt;
  bool all_heard = true;
  for (const RankState& rank : job.attempt->ranks) {
    const Worker* worker = turn.state.fleet.find(rank.worker);
    if (!worker || !worker->is_open() || worker->draining || worker->incarnation != rank.incarnation)
      return Cause::Worker;
    all_heard &= worker->heard > suspicion->since;
  }
  return all_heard || !tries_split(job) ? std::optional(Cause::Attempt) : std::nullopt;
}

// Steps that are done again with another arithmetic need not repeat theirs: whoever looks into a difference must know.
void say_other_arithmetic(Turn& turn, Job& job) {
  const Attempt& attempt = *job.attempt;
  const std::string& had = attempt.loaded_fingerprint;
  const std::string& has = attempt.ranks.front().fingerprint;
  if (had.empty() || had == has) return;
  note(
      turn, job,
      fmt::format(
          "the arithmetic has changed: the checkpoint of step {} was made with \"{}\", its ranks compute with "
          "\"{}\"; losses may differ from those of the machines before in their last bits",
          attempt.first_step, had, has));
}

void succeed(Turn& turn, Job& job) {
  begin_ending(turn, job,
               {.state = JobState::Succeeded,
                .reason = counted(job.status.step, "step") + " done",
                .exit_code = ExitCode::Succeeded,
                .weights_digest = job.attempt->weights_digest});
}

void conclude(Turn& turn, Job& job) {
  Attempt& attempt = *job.attempt;
  if (job.status.step < job.definition.steps) {
    fail_job(turn, job,
             fmt::format("every rank has finished, but {} of {} steps were reported by all of them",
                         job.status.step, job.definition.steps));
    return;
  }
  if (job.spec->device.emulated()) return succeed(turn, job);  // there are no weights
  std::vector<std::vector<ParameterDigest>> digests;
  for (RankState& rank : attempt.ranks) digests.push_back(std::move(rank.digests));
  // A stage that stands on two ranks of a pipeline does so as the loss stage does.
  const int in_pipeline = static_cast<int>(attempt.loss_ranks.size()) / job.spec->parallel.pipelines();
  const ReplicaCounts replicas{.of_dense = in_pipeline * job.spec->parallel.pipelines(),
                               .of_experts = in_pipeline * job.spec->parallel.data};
  const StatusOr<std::string> digest = combine_digests(job.spec->model, digests, replicas);
  if (!digest.ok()) {
    fail_job(turn, job, message(digest.status()));
    return;
  }
  attempt.weights_digest = *digest;
  if (attempt.weights.directory.empty()) return succeed(turn, job);
  turn.emit(CommitWeights{job.name(), attempt.order, job.spec, attempt.weights});
}

// A disk that is full, or away for a while, costs the attempt; anything else would come out the same again.
void fail_of_disk(Turn& turn, Job& job, const Status& status, const std::string& reason) {
  const bool passes =
      status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kResourceExhausted;
  if (passes) return fail_attempt(turn, job, reason);
  fail_job(turn, job, reason);
}

// The attempt goes on from before the file whose sums have another order than those on record: it is done with these anew.
void report_anew(Turn& turn, Job& job) {
  const int64_t first = job.attempt->first_step, beyond = std::exchange(job.definition.sums_since, first);
  note(turn, job,
       fmt::format("steps from {} on are reported anew: up to {} they were summed in another order", first,
                   beyond));
  std::vector<Write> writes = without_steps_beyond_checkpoint(job);
  writes.push_back(PutDefinition{job.definition});
  writes.push_back(PutStatus{job.name(), job.status});
  turn.save(std::move(writes));
}

}  // namespace

void succeed_when_finished(Turn& turn, Job& job) {
  const Attempt& attempt = *job.attempt;
  if (attempt.finished == static_cast<int>(attempt.ranks.size()) && attempt.committing == 0)
    conclude(turn, job);
}

void place_queue(Turn& turn) {
  State& state = turn.state;
  state.placing_due = false;
  state.place_next = turn.now.time + state.options.placing_interval;
  if (state.store.pending() >= state.options.transactions_pending) {
    state.placing_due = true;  // what is placed must be written; the store has enough to write
    return;
  }
  const std::vector<std::string> names(state.queue.begin(), state.queue.end());
  Placer placer(state.fleet, kept_seats(state));
  std::string blocked_by;
  for (const std::string& name : names) {
    Job& job = state.jobs.at(name);
    if (!blocked_by.empty() && !placer.keeps_seats(name)) {
      const std::string reason = fmt::format("waits behind job {}", blocked_by);
      if (job.status.state == JobState::Placing)
        turn.save(move_job(turn, job, JobState::Queued, reason, "coordinator"));
      set_reason(turn, job, reason);
      continue;
    }
    const Placement placement = placer.place(placement_request(job));
    if (job.status.state == JobState::Queued)
      turn.save(move_job(turn, job, JobState::Placing, placement.reason, "coordinator"));
    if (placement.placed()) {
      std::erase(state.queue, name);
      begin_attempt(turn, job, placement);
      continue;
    }
    set_reason(turn, job, placement.reason);
    if (placement.fits_fleet) blocked_by = name;
  }
}

void on_planned(Turn& turn, AttemptPlanned event) {
  Job* job = turn.state.find_job(event.job);
  if (!job || !job->live() || !job->attempt || job->attempt->order != event.order) return;
  if (!event.status.ok()) {
    fail_of_disk(turn, *job, event.status, message(event.status));
    return;
  }
  Attempt& attempt = *job->attempt;
  attempt.plan = std::move(event.plan);
  attempt.prepare_by = turn.now.time + turn.state.options.preparing_limit;
  attempt.load_from = std::move(event.load_from);
  attempt.first_step = event.first_step;
  attempt.last_checkpoint = event.first_step;
  attempt.window = StepWindow(static_cast<int>(attempt.ranks.size()), event.first_step);
  attempt.durable_before = event.first_step;
  attempt.loaded_fingerprint = one_line(utf8_cleaned(event.fingerprint, codec::kLongestName));
  job->status.durable_step = event.other_job.empty() ? event.first_step : 0;
  for (const std::string& refused : event.refused)
    note(turn, *job, fmt::format("a checkpoint is not used: {}", one_line(refused)));
  if (!event.other_job.empty()) {
    note(turn, *job,
         fmt::format("begins with the checkpoint of step {} of job {}: {}", attempt.first_step,
                     one_line(event.other_job), one_line(attempt.load_from)));
  } else if (attempt.first_step > 0) {
    note(turn, *job, fmt::format("goes on from the checkpoint of step {}", attempt.first_step));
  }
  if (attempt.first_step < job->definition.sums_since) report_anew(turn, *job);
  if (event.split) start_with_split(turn, *job, *std::move(event.split));
  assign_when_ready(turn, *job);
}

void on_weights_committed(Turn& turn, const WeightsCommitted& event) {
  Job* job = turn.state.find_job(event.job);
  if (!job || !job->live() || !job->attempt || job->attempt->order != event.order) {
    if (event.status.ok()) turn.emit(DiscardWeights{event.weights});  // cancelled meanwhile
    return;
  }
  if (event.status.ok()) return succeed(turn, *job);
  fail_of_disk(turn, *job, event.status,
               fmt::format("the final weights cannot be kept: {}", message(event.status)));
}

void start_attempt(Turn& turn, const std::string& name, int64_t number) {
  Job* job = live_attempt(turn.state, name, number);
  if (!job) return;
  job->attempt->durable = true;
  assign_when_ready(turn, *job);
}

void assign_more(Turn& turn) {
  forget_attempts_that_are_over(turn.state);
  std::deque<Assigning>& assigning = turn.state.assigning;
  if (assigning.empty()) return;
  if (assign_some(turn, turn.state.jobs.at(assigning.front().job))) assigning.pop_front();
  if (!assigning.empty()) turn.emit(CallAgain{});
}

void rank_ready(Turn& turn, Job& job, const RankReady& report) {
  Attempt& attempt = *job.attempt;
  RankState& rank = attempt.ranks[static_cast<size_t>(report.rank.value)];
  rank.ready = true;
  rank.fingerprint = one_line(utf8_cleaned(report.fingerprint, codec::kLongestName));
  if (const auto reason = different_arithmetic(attempt, report.rank)) return fail_job(turn, job, *reason);
  const size_t ranks = attempt.ranks.size();
  if (++attempt.ready < static_cast<int>(ranks)) {
    // A thousand ranks are a thousand changes, and not as many lines in the log.
    const bool said = attempt.ready > 1 && turn.now.time - attempt.ready_said < 1s;
    set_reason(turn, job, readiness(attempt), !said);
    if (!said) attempt.ready_said = turn.now.time;
    return;
  }
  attempt.progressed = turn.now.time;
  job.start_seconds = to_seconds(turn.now.time - attempt.began);
  say_other_arithmetic(turn, job);
  turn.save(move_job(turn, job, JobState::Running,
                     ranks == 1 ? "its rank is ready" : fmt::format("all {} ranks are ready", ranks),
                     "coordinator"));
}

void rank_finished(Turn& turn, Job& job, RankFinished report) {
  RankState& rank = job.attempt->ranks[static_cast<size_t>(report.rank.value)];
  rank.finished = true;
  rank.digests = std::move(report.digests);
  ++job.attempt->finished;
  succeed_when_finished(turn, job);
}

void suspect(Turn& turn, Job& job, const std::string& reason) {
  if (job.attempt->suspicion) return;
  job.attempt->suspicion = Suspicion{reason, turn.now.time, turn.now.time + turn.state.options.settling};
}

void check_deadlines(Turn& turn, Job& job) {
  const Attempt& attempt = *job.attempt;
  if (const std::optional<Cause> cause = settled_cause(turn, job)) {
    fail_attempt(turn, job, std::string(attempt.suspicion->reason), *cause);
    return;
  }
  // What the planner takes to read a checkpoint is not the ranks' time.
  if (job.status.state != JobState::Preparing || !attempt.prepare_by || turn.now.time < *attempt.prepare_by)
    return;
  std::vector<std::string> missing;
  for (size_t r = 0; r < attempt.ranks.size(); ++r) {
    if (!attempt.ranks[r].ready) missing.push_back(fmt::format("rank {} on {}", r, attempt.ranks[r].worker));
  }
  fail_attempt(turn, job,
               fmt::format("not ready after {:.0f} s: {}", to_seconds(turn.state.options.preparing_limit),
                           list_cut(missing)));
}

}  // namespace penstock::coordinator
