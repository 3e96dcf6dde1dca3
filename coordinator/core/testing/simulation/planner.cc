#include "coordinator/core/testing/simulation/planner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "coordinator/core/testing/simulation/jobs.h"

namespace penstock::coordinator::testing {
namespace {

template <typename Command>
Command take_first(std::deque<Command>& waiting) {
  Command first = std::move(waiting.front());
  waiting.pop_front();
  return first;
}

}  // namespace

void SimulatedPlanner::take(const PlanAttempt& command) {
  whole_.erase(command.weights.directory);  // those of a retired job of that name are moved away
  attempts_.push_back(command);
}

void SimulatedPlanner::take(const ConsiderSplit& command) {
  EXPECT_TRUE(std::none_of(splits_.begin(), splits_.end(),
                           [&](const ConsiderSplit& other) { return other.order == command.order; }))
      << command.job << " is asked about twice at once";
  splits_.push_back(command);
}

void SimulatedPlanner::take(const CommitCheckpoint& command) {
  EXPECT_FALSE(drafts_removed_.contains(command.place.marker))
      << command.job << ": a checkpoint whose draft was removed before";
  checkpoints_.push_back(command);
}

void SimulatedPlanner::take(const DiscardWeights& command) {
  EXPECT_EQ(whole_.erase(command.weights.directory), 1u);
}

std::optional<SimulatedPlanner::Answer> SimulatedPlanner::answer_one() {
  if (!looking_.empty() && scene_.one_in(2)) return look_for_checkpoint();
  if (!checkpoints_.empty() && scene_.one_in(2)) return commit_checkpoint();
  if (!weights_.empty() && scene_.one_in(2)) return commit_weights();
  if (!splits_.empty() && scene_.one_in(2)) return consider_split();
  if (!attempts_.empty()) return plan();
  return std::nullopt;
}

SimulatedPlanner::Answer SimulatedPlanner::plan() {
  const PlanAttempt wanted = take_first(attempts_);
  AttemptPlanned planned{wanted.job, wanted.order, ok_status(), nullptr};
  if (scene_.one_in(50)) {
    planned.status = internal_error("the planner stumbled");
    return {wanted.job, std::move(planned)};
  }
  planned.plan = plan_of(*wanted.spec);
  find_checkpoint(wanted, planned);
  if (wanted.question && scene_.one_in(2)) planned.split = any_answer(*wanted.question, scene_);
  if (planned.split && planned.split->spec) planned.plan = plan_of(*planned.split->spec);
  return {wanted.job, std::move(planned)};
}

// The newest one on record, unless it is damaged; where there is none, the one that the job's file names, which may have
// been removed. Before the first step of its own the job's folder is empty.
void SimulatedPlanner::find_checkpoint(const PlanAttempt& wanted, AttemptPlanned& planned) {
  const plan::StartSpec& from = wanted.spec->restart.from;
  if (!from.path.empty()) {
    if (scene_.one_in(30)) planned.status = not_found("{}: its job may have removed it", from.path);
    planned.first_step = from.step;
    planned.load_from = from.path;
    planned.other_job = "other";
    planned.fingerprint = scene_.one_in(2) ? "sim" : "another";
  }
  const std::string& directory = wanted.checkpoints.place.directory;
  if (directory.empty()) return;
  std::set<int64_t>& steps = steps_kept_[{directory, wanted.job}];
  if (wanted.checkpoints.latest_step == from.step) steps.clear();
  while (!steps.empty() && scene_.one_in(6)) {
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

SimulatedPlanner::Answer SimulatedPlanner::consider_split() {
  const ConsiderSplit wanted = take_first(splits_);
  return {wanted.job, SplitConsidered{wanted.job, wanted.order, any_answer(wanted.question, scene_)}};
}

// A commit may come after its job was cancelled, or fail.
SimulatedPlanner::Answer SimulatedPlanner::commit_weights() {
  const CommitWeights wanted = take_first(weights_);
  const Status status = scene_.one_in(20) ? resource_exhausted("the disk is full") : ok_status();
  EXPECT_EQ(wanted.weights.directory, weights_folder(wanted.job));
  if (status.ok()) whole_.insert(wanted.weights.directory);
  return {wanted.job, WeightsCommitted{wanted.job, wanted.order, wanted.weights, status}};
}

SimulatedPlanner::Answer SimulatedPlanner::commit_checkpoint() {
  const CommitCheckpoint wanted = take_first(checkpoints_);
  const Status status = scene_.one_in(8) ? resource_exhausted("the disk is full") : ok_status();
  if (status.ok()) put_checkpoint(wanted);
  return {wanted.job,
          CheckpointCommitted{wanted.job, wanted.order, wanted.step, status, std::string(32, 'd')}};
}

void SimulatedPlanner::put_checkpoint(const CommitCheckpoint& command) {
  steps_kept_[{command.place.directory, command.job}].insert(command.step);
}

SimulatedPlanner::Answer SimulatedPlanner::look_for_checkpoint() {
  const LookForCheckpoint wanted = take_first(looking_);
  CheckpointFound found{wanted.job, 0, std::string(32, 'd')};
  for (const int64_t step : steps_kept_[{wanted.directory, wanted.job}]) {
    if (step <= wanted.latest_step) found.step = step;
  }
  return {wanted.job, std::move(found)};
}

void SimulatedPlanner::crash() {
  attempts_.clear();
  splits_.clear();
  weights_.clear();
  looking_.clear();
  while (!checkpoints_.empty()) {
    const CommitCheckpoint begun = take_first(checkpoints_);
    if (scene_.one_in(2)) put_checkpoint(begun);
  }
}

}  // namespace penstock::coordinator::testing
