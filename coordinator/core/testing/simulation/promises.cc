#include "coordinator/core/testing/simulation/promises.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/testing/simulation/fleet.h"
#include "coordinator/core/testing/simulation/jobs.h"
#include "plan/spec/same_training.h"
#include "plan/spec/split_source.h"

namespace penstock::coordinator::testing {
namespace {

int64_t steps_of(const StoredJob& stored) {
  return stored.definition.first_step + static_cast<int64_t>(stored.losses.size());
}

bool waits(JobState state) {
  return state == JobState::Recovering || state == JobState::Queued || state == JobState::Placing ||
         state == JobState::Paused;
}

}  // namespace

const Job* Promises::find_job(const std::string& name) const {
  const auto found = world_.state.jobs.find(name);
  return found == world_.state.jobs.end() ? nullptr : &found->second;
}

void Promises::check() {
  check_jobs();
  check_devices();
  check_bounds();
  check_weights();
  check_recovery();
  check_traces();
  check_moves();
  check_cordons();
  moved_seats_.check(world_.state, world_.scene.now.time);
}

void Promises::check_jobs() {
  for (const std::string& name : acknowledged_) {
    EXPECT_TRUE(world_.durable.find(name)) << "acknowledged job " << name << " would be lost by a crash now";
    EXPECT_TRUE(world_.state.jobs.contains(name)) << "acknowledged job " << name << " is lost";
  }
  for (const JobView& view : view_jobs(world_.state, world_.scene.now.unix_ms)) {
    const int64_t sequence = world_.state.jobs.at(view.name).definition.sequence;
    const auto known = ended_.find(view.name);
    if (known != ended_.end() && known->second.sequence == sequence) {
      EXPECT_EQ(view.state, known->second.state) << view.name << " has ended and changed its state";
      EXPECT_EQ(view.weights_digest, known->second.digest);
    } else if (view.ended()) {
      note_end(view, sequence);
    }
  }
}

void Promises::note_end(const JobView& view, int64_t sequence) {
  ended_[view.name] = {view.state, view.weights_digest, sequence};
  const StoredJob* stored = world_.durable.find(view.name);
  ASSERT_TRUE(stored) << view.name;
  EXPECT_EQ(stored->status.state, view.state)
      << "the end of " << view.name << " was shown before it was durable";
  if (view.state != JobState::Succeeded) return;
  ++tally_.succeeded;
  tally_.succeeded_side_by_side += parsed(stored->definition.spec_yaml)->parallel.pipelines() > 1;
  tally_.succeeded_from_another += view.first_step > 0;
  std::vector<double> expected;
  for (int64_t step = view.first_step; step < view.steps; ++step) expected.push_back(loss_at(step));
  const Job& job = world_.state.jobs.at(view.name);
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
void Promises::check_devices() const {
  for (const auto& [name, worker] : world_.state.fleet.workers) {
    for (const Device& device : worker.devices) {
      if (device.use != DeviceUse::Held || !worker.is_open()) continue;
      const Job* job = find_job(device.attempt.job);
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

void Promises::check_bounds() const {
  const State& state = world_.state;
  const Options& options = state.options;
  size_t leaving = 0;  // ended, and kept until their executors are gone
  size_t losses = 0;
  for (const std::string& name : state.ended) {
    leaving += state.jobs.at(name).executors_left > 0;
    losses += state.jobs.at(name).losses.size();
  }
  EXPECT_LE(state.ended.size(), options.jobs_ended + leaving);
  EXPECT_LE(losses, options.losses_of_ended);
  EXPECT_LE(state.jobs.size() - state.ended.size(), options.jobs_live);
  EXPECT_LE(state.queue.size(), options.jobs_live);
  EXPECT_LE(state.assigning.size(), options.jobs_live);
  EXPECT_LE(state.answers.size(), options.answers_pending);
  EXPECT_LE(state.names_by_request.size(), state.jobs.size());
  EXPECT_LE(state.fleet.workers.size(), options.workers);
  EXPECT_LE(state.fleet.sessions.size(), options.workers);
  EXPECT_LE(state.fleet.cordons.size(), options.workers);
  EXPECT_LE(state.broker.pending(), options.look_ups_pending);
  EXPECT_LE(state.broker.attempts(), options.jobs_live);
  EXPECT_LE(world_.planner.splits_to_consider(), options.jobs_live);
  // Each job has at most a few transitions, one progress save and some answers under way.
  EXPECT_LE(state.store.held(), 20 * state.jobs.size() + options.transactions_pending);
  for (const auto& [name, job] : state.jobs) check_bounds_of(job);
}

void Promises::check_bounds_of(const Job& job) const {
  const Options& options = world_.state.options;
  EXPECT_LE(job.events.size(), options.events_per_job);
  EXPECT_LE(job.log.lines(), options.log_lines_per_job);
  EXPECT_LE(static_cast<int64_t>(job.losses.size()), job.definition.steps - job.definition.first_step);
  EXPECT_LE(job.definition.moves.undone.size(), kMostUndone);
  EXPECT_LE(job.attempt ? job.attempt->window.waiting() : 0, 64u);
}

void Promises::check_weights() const {
  for (const auto& [name, job] : world_.state.jobs) {
    if (job.status.state != JobState::Succeeded) continue;
    EXPECT_TRUE(world_.planner.has_weights_of(name)) << name;
  }
}

void Promises::check_recovery() const {
  for (const auto& [name, job] : world_.state.jobs) {
    EXPECT_FALSE(waits(job.status.state) && job.attempt.has_value()) << name;
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

void Promises::check_traces() {
  for (const auto& [name, job] : world_.state.jobs) {
    for (const int64_t step : job.traces.complete()) {
      const std::vector<TraceBytes>& ranks = job.traces.find(step)->ranks;
      EXPECT_EQ(static_cast<int>(ranks.size()), job.definition.ranks) << name;
      std::set<std::string> attempts;
      for (const TraceBytes& bytes : ranks) attempts.insert(bytes->substr(bytes->find("attempt-"), 12));
      EXPECT_EQ(attempts.size(), 1u) << name;
      ++tally_.traces_seen;
    }
  }
}

void Promises::check_moves() const {
  for (const auto& [name, job] : world_.state.jobs) {
    if (!job.spec || job.ended()) continue;
    EXPECT_EQ(job.definition.spec_yaml, job.spec->yaml) << name;
    const std::vector<std::string>& undone = job.definition.moves.undone;
    const std::string split = plan::to_text(job.spec->parallel.split);
    EXPECT_EQ(std::count(undone.begin(), undone.end(), split), 0) << name << " is back at " << split;
  }
}

// Whatever is placed in an event is placed on workers that take work then.
void Promises::check_cordons() {
  const std::map<std::string, Cordon>& cordons = world_.state.fleet.cordons;
  int64_t newest = newest_placement_;
  for (const auto& [name, job] : world_.state.jobs) {
    if (!job.attempt || job.last_order <= newest_placement_) continue;
    newest = std::max(newest, job.last_order);
    for (const RankPlacement& rank : job.placed)
      EXPECT_FALSE(cordons.contains(rank.worker))
          << name << " is placed on " << rank.worker << ", which is drained";
    tally_.placed_beside_cordons += !cordons.empty();
  }
  newest_placement_ = newest;
}

void Promises::check_move(const std::string& name, const Job& before) {
  const Job* job = find_job(name);
  if (!job || job->definition.spec_yaml == before.definition.spec_yaml) return;
  ++tally_.moves;
  tally_.moves_undone += job->definition.moves.undone.size() > before.definition.moves.undone.size();
  EXPECT_EQ(job->status.restarts, before.status.restarts) << name;
  EXPECT_EQ(job->status.barren_attempts, before.status.barren_attempts) << name;
  EXPECT_EQ(job->losses, before.losses) << name;
}

void Promises::check_rest() const {
  for (const auto& [name, job] : world_.state.jobs) {
    const StoredJob* stored = world_.durable.find(name);
    ASSERT_TRUE(stored) << name;
    EXPECT_EQ(stored->events, std::vector<JobEventView>(job.events.begin(), job.events.end())) << name;
    EXPECT_EQ(stored->next_event, job.next_event) << name;
    std::vector<int64_t> traced;
    for (const auto& [step, ranks] : stored->traces) traced.push_back(step);
    EXPECT_EQ(traced, job.traces.complete()) << name;
  }
  EXPECT_EQ(world_.durable.cordons(), world_.state.fleet.cordons);
  EXPECT_TRUE(world_.state.assigning.empty());
  EXPECT_TRUE(world_.state.answers.empty());
}

void Promises::check_crash() {
  tally_.moves_interrupted += moved_seats_.crash(world_.durable, world_.scene.now.time);
  for (const StoredJob& job : world_.durable.jobs()) {
    if (job.definition.moves.file_before.empty()) continue;
    EXPECT_TRUE(plan::differ_by_split_alone(*parsed(job.definition.moves.file_before),
                                            *parsed(job.definition.spec_yaml)))
        << job.definition.name;
  }
}

void Promises::check_assignment(const Assignment& assignment) {
  const AttemptKey& key = assignment.attempt;
  const StoredJob* stored = world_.durable.find(key.job);
  ASSERT_NE(stored, nullptr) << key.job << " was assigned before it was durable";
  EXPECT_GE(stored->status.attempt, key.attempt) << key.job << " was assigned before its attempt was durable";
  const int64_t sequence = stored->definition.sequence;
  EXPECT_TRUE(started_.insert({key.job, sequence, key.attempt, assignment.rank.value}).second)
      << key.job << " attempt " << key.attempt << " rank " << assignment.rank.value << " was assigned twice";
  EXPECT_EQ(assignment.split, parsed(assignment.spec_yaml)->parallel.split);
  const auto [known, is_first] = files_.try_emplace({key.job, sequence, key.attempt}, assignment.spec_yaml);
  EXPECT_EQ(known->second, assignment.spec_yaml) << key.job << ": ranks of one attempt with different files";
  ++tally_.assignments;
  check_start(assignment, *stored);
}

void Promises::check_start(const Assignment& assignment, const StoredJob& stored) {
  const std::string& name = assignment.attempt.job;
  const int64_t first_step = assignment.first_step;
  EXPECT_GE(steps_of(stored), first_step) << name << " goes on from steps that a crash now would lose";
  EXPECT_EQ(first_step == 0, assignment.load_from.empty());
  EXPECT_GE(first_step, stored.definition.first_step);
  const bool is_its_own = first_step > stored.definition.first_step;
  const bool is_of_another = first_step > 0 && !is_its_own;
  EXPECT_EQ(assignment.load_from.starts_with("/other/"), is_of_another) << assignment.load_from;
  tally_.from_checkpoints += is_its_own;
  tally_.begun_with_another += is_of_another;
}

void Promises::check_commit(const CommitCheckpoint& command) const {
  const StoredJob* stored = world_.durable.find(command.job);
  ASSERT_NE(stored, nullptr);
  EXPECT_GE(steps_of(*stored), command.step)
      << command.job << ": a checkpoint of steps that are not on record";
}

void Promises::note_retired(const std::string& job) {
  acknowledged_.erase(job);
  ended_.erase(job);
}

}  // namespace penstock::coordinator::testing
