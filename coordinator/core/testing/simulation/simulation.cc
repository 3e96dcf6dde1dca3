#include "coordinator/core/testing/simulation/simulation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/core/testing/simulation/jobs.h"
#include "plan/spec/rank_groups.h"
#include "plan/spec/rank_place.h"

namespace penstock::coordinator::testing {
namespace {

using namespace std::chrono_literals;

// So narrow that every bound is met.
Options narrow_options() {
  Options options;
  options.weights_root = "/state/jobs";
  options.jobs_live = 6;
  options.jobs_ended = 4;
  options.events_per_job = 6;
  options.log_lines_per_job = 5;
  options.look_ups_pending = 4;
  options.workers = 6;
  options.transactions_pending = 40;
  options.answers_pending = 6;
  options.lost_worker_kept = 60s;
  options.assigned_at_once = 1;
  options.losses_of_ended = 6;
  options.stalled_after = 5s;
  options.notes_per_job = 2;
  options.question = {.steps = 1, .samples = 1};
  return options;
}

}  // namespace

Simulation::Simulation(uint64_t seed, Tally& tally, Trace trace)
    : scene_{.random = std::mt19937_64(seed), .is_told = trace == Trace::On}, tally_(tally) {
  state_.options = narrow_options();
}

void Simulation::run(int events) {
  for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
    one_event();
    promises_.check();
  }
  if (!::testing::Test::HasFailure()) come_to_rest();
}

void Simulation::one_event() {
  const int dice = scene_.below(1000);
  if (dice < 60) return submit();
  if (dice < 75) return cancel();
  if (dice < 80) return pause_or_resume();
  if (dice < 84) return cordon_or_uncordon(fleet_.any());
  if (dice < 180) return advance();
  if (dice < 300) return commit_some();
  if (dice < 340) return answer_one();
  if (dice < 360) return assign_one();
  if (dice < 450) return tell(fleet_.open_session(fleet_.any()));
  if (dice < 458) return tell(fleet_.break_session(fleet_.any()));
  if (dice < 464) return tell(fleet_.restart(fleet_.any()));
  if (dice < 720) return fleet_.work(fleet_.any(), state_);
  if (dice < 930) return tell(fleet_.deliver(fleet_.any()));
  if (dice < 945) return tell(fleet_.forge(fleet_.any()));
  if (dice < 951) return fleet_.kill_executor(fleet_.any());
  if (dice < 955) return fleet_.drain(fleet_.any());
  if (dice < 985) return use_broker(fleet_.any());
  if (dice < 990) return crash();
  beat_all();
}

void Simulation::advance() {
  scene_.pass(std::chrono::milliseconds(scene_.one_in(10) ? 3000 : scene_.below(300)));
  fleet_.end_orphans();
  tell(Tick{});
}

void Simulation::beat_all() {
  for (const auto& [name, daemon] : fleet_.daemons()) {
    if (daemon.session != 0) tell(SessionSaid{daemon.session, Heartbeat{1}});
  }
}

void Simulation::answer_one() {
  std::optional<SimulatedPlanner::Answer> answer = planner_.answer_one();
  if (!answer) return;
  const Job* job = state_.find_job(answer->job);
  const Job before = job ? *job : Job{};
  tell(std::move(answer->event));
  promises_.check_move(answer->job, before);
}

void Simulation::assign_one() {
  if (!call_again_) return;
  call_again_ = false;
  tell(AssignMore{});
}

void Simulation::commit_some() {
  if (queued_.empty()) return;
  if (scene_.one_in(20)) {
    store_fails_ = true;
    return tell(StoreHealth{resource_exhausted("database or disk is full")});
  }
  if (store_fails_) tell(StoreHealth{ok_status()});
  store_fails_ = false;
  Ticket last = 0;
  for (int count = 1 + scene_.below(4); count > 0 && !queued_.empty(); --count) {
    for (const Write& write : queued_.front().writes) durable_.apply(write);
    last = queued_.front().ticket;
    queued_.pop_front();
  }
  tell(StoreDurable{last});
}

void Simulation::crash() {
  scene_.tell("the coordinator crashes");
  ++tally_.crashes;
  state_ = State{};
  state_.options = narrow_options();
  queued_.clear();
  planner_.crash();
  call_again_ = false;
  store_fails_ = false;
  unanswered_.clear();  // their callers see the connection break
  fleet_.close_all();
  promises_.check_crash();
  // What was shown before must be there again.
  tell(Restore{durable_.jobs(), durable_.cordons()});
}

void Simulation::submit() {
  const ReplyId reply = ask();
  const std::string request = scene_.one_in(3) ? fmt::format("request-{}", scene_.below(5)) : "";
  tell(Submit{reply, "ann", request, any_job(scene_)});
}

std::string Simulation::any_job_there() {
  return std::next(state_.jobs.begin(), scene_.below(static_cast<int>(state_.jobs.size())))->first;
}

void Simulation::cancel() {
  if (state_.jobs.empty()) return;
  tell(Cancel{ask(), any_job_there(), "bob"});
}

void Simulation::pause_or_resume() {
  if (state_.jobs.empty()) return;
  const std::string job = any_job_there();
  if (scene_.one_in(2)) return tell(Pause{ask(), job, "bob"});
  resume(job);
}

// As it was cut, or otherwise.
void Simulation::resume(const std::string& name) {
  const Job& job = state_.jobs.at(name);
  const Spec other = job.spec && scene_.one_in(2) ? cut_anew(*job.spec, scene_) : nullptr;
  const int before = job.definition.ranks;
  tell(Resume{ask(), name, "bob", other});
  tally_.recuts += job.definition.ranks != before;
}

void Simulation::cordon_or_uncordon(const Daemon& daemon) {
  const std::string name = scene_.one_in(10) ? "stranger" : daemon.name;
  if (scene_.one_in(2)) return tell(Drain{ask(), name, "bob"});
  tell(Uncordon{ask(), name, "bob"});
}

void Simulation::use_broker(const Daemon& daemon) {
  if (daemon.executors.empty()) return;
  const Assignment& assignment = daemon.executors.begin()->second.assignment;
  const plan::ParallelSpec& parallel = parsed(assignment.spec_yaml)->parallel;
  const plan::RankPlace place = plan::place_of_rank(parallel, assignment.rank);
  const plan::RankGroup group = scene_.one_in(2) ? plan::pipeline_group(parallel, place.pipeline)
                                                 : plan::data_group(parallel, place.pipeline_rank);
  CommunicatorKey key{assignment.attempt, group.name, group.member(assignment.rank),
                      fmt::format("item-{}", scene_.below(2))};
  if (scene_.one_in(2)) return tell(Publish{ask(), key, "value"});
  key.rank = RankIndex(scene_.below(static_cast<int>(group.ranks.size())));
  const ReplyId reply = ask();
  tell(LookUp{reply, key, scene_.now.time + 1s});
  if (scene_.one_in(4)) tell(LookUpAbandoned{reply});
}

void Simulation::come_to_rest() {
  for (auto& [name, daemon] : fleet_.daemons()) tell(Uncordon{ask(), name, "bob"});
  for (auto& [name, daemon] : fleet_.daemons()) {
    if (daemon.draining) tell(fleet_.restart(daemon));
  }
  bool may_crash = true;
  for (int round = 0; round < 2000; ++round) {
    if (may_crash && promises_.is_a_job_moving() && scene_.one_in(4)) {  // most moves come this late
      crash();
      may_crash = false;
    }
    if (is_at_rest()) {
      promises_.check();
      return promises_.check_rest();
    }
    one_healthy_round();
    promises_.check();
    if (::testing::Test::HasFailure()) return;
  }
  ADD_FAILURE() << "no rest:" << what_is_left();
}

void Simulation::one_healthy_round() {
  for (auto& [name, daemon] : fleet_.daemons()) {
    tell(fleet_.open_session(daemon));
    fleet_.work(daemon, state_);
    if (daemon.session != 0 && !daemon.unsent.empty()) {
      const WorkerMessage message = std::move(daemon.unsent.front());
      daemon.unsent.pop_front();
      tell(SessionSaid{daemon.session, message});
    }
    if (daemon.session != 0) tell(SessionSaid{daemon.session, Heartbeat{1}});
  }
  resume_all();
  commit_some();
  answer_one();
  assign_one();
  scene_.pass(200ms);
  tell(Tick{});
}

void Simulation::resume_all() {
  std::vector<std::string> paused;
  for (const auto& [name, job] : state_.jobs) {
    if (job.status.state == JobState::Paused && job.live() && job.admitted) paused.push_back(name);
  }
  for (const std::string& name : paused) resume(name);
}

bool Simulation::is_at_rest() const {
  return state_.ended.size() == state_.jobs.size() && queued_.empty() && unanswered_.empty() &&
         take_census(state_).devices_free == SimulatedFleet::kDevices && state_.broker.pending() == 0;
}

std::string Simulation::what_is_left() const {
  std::string text;
  for (const JobView& view : view_jobs(state_, 0)) {
    if (!view.ended()) text += fmt::format("\n{} {}: {}", view.name, to_string(view.state), view.reason);
  }
  for (const WorkerView& worker : worker_views(state_.fleet)) {
    text += fmt::format("\n{} {} {} {}", worker.name, worker.device, worker.state, worker.job);
  }
  return text + fmt::format("\n{} answers, {} saves missing", unanswered_.size(), queued_.size());
}

ReplyId Simulation::ask() {
  unanswered_.insert(++last_reply_);
  return last_reply_;
}

void Simulation::answered(ReplyId reply) {
  EXPECT_EQ(unanswered_.erase(reply), 1u) << "reply " << reply << " answered twice";
}

void Simulation::tell(std::optional<Event> event) {
  if (!event) return;
  for (Command& command : apply(state_, std::move(*event), scene_.now)) {
    std::visit([this](auto& one) { obey(one); }, command);
  }
}

void Simulation::obey(AnswerSubmit& command) {
  answered(command.reply);
  if (command.outcome.ok()) promises_.note_acknowledged(command.outcome->name);
}

void Simulation::obey(CommitCheckpoint& command) {
  promises_.check_commit(command);
  planner_.take(command);
}

void Simulation::obey(CallAgain&) {
  EXPECT_FALSE(call_again_);
  call_again_ = true;
}

void Simulation::obey(Observed& command) {
  const auto* retired = std::get_if<JobRetired>(&command.observation);
  if (!retired) return;
  promises_.note_retired(retired->job);
  fleet_.forget(retired->job);
}

void Simulation::obey(SendToWorker& command) {
  Daemon* daemon = fleet_.find(command.session);
  if (!daemon) return;  // a broken session whose end has not been noticed
  if (const auto* assignment = std::get_if<Assignment>(&command.message))
    promises_.check_assignment(*assignment);
  fleet_.receive(*daemon, command.message);
}

}  // namespace penstock::coordinator::testing
