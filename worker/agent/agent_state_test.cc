#include "worker/agent/agent_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::worker {
namespace {

using testing::HasSubstr;

constexpr int64_t kIncarnation = 40;

class AgentStateTest : public testing::Test {
 protected:
  using Commands = std::vector<AgentCommand>;

  Commands apply(const AgentEvent& event) { return state.apply(clock.now(), event); }

  void open_session() {
    while (!any<Connect>(apply(Tick{}))) clock.advance(100ms);
    apply(SessionOpened{2s, 3, "c-1"});
    ASSERT_TRUE(state.session_open());
  }

  static Assignment assignment(const std::string& job = "a", int64_t attempt = 1, int rank = 0,
                               int device = 0) {
    Assignment made;
    made.attempt = AttemptKey{job, attempt, kIncarnation};
    made.rank = RankIndex(rank);
    made.device = device;
    return made;
  }

  // Assigns and brings the rank to Running.
  void start(const Assignment& wanted) {
    ASSERT_TRUE(any<Spawn>(apply(AssignReceived{wanted})));
    apply(ExecutorSpawned{wanted.device, ok_status(), 1234});
    apply(ExecutorSaid{wanted.device, RankReady{wanted.attempt, wanted.rank, 0, "cpu"}});
  }

  template <typename T>
  static bool any(const Commands& commands) {
    return std::any_of(commands.begin(), commands.end(),
                       [](const AgentCommand& command) { return std::holds_alternative<T>(command); });
  }
  // The reports of type T among the commands.
  template <typename T>
  static std::vector<T> reports(const Commands& commands) {
    std::vector<T> found;
    for (const AgentCommand& command : commands) {
      const auto* send = std::get_if<Send>(&command);
      if (send != nullptr && std::holds_alternative<T>(send->report))
        found.push_back(std::get<T>(send->report));
    }
    return found;
  }

  FakeClock clock;
  AgentLimits limits;
  AgentState state{AgentIdentity{"w1", kIncarnation, 2, "127.0.0.1", 3}, limits, 7};
};

TEST_F(AgentStateTest, first_tick_connects) {
  EXPECT_TRUE(any<Connect>(apply(Tick{})));
}

TEST_F(AgentStateTest, failed_connects_back_off_to_a_bound) {
  // A fleet whose coordinator is away must not hammer it, and must be back soon after it is.
  Duration longest{};
  for (int attempt = 0; attempt < 12; ++attempt) {
    ASSERT_TRUE(any<Connect>(apply(Tick{}))) << attempt;
    apply(SessionEnded{unavailable("refused")});
    const TimePoint failed_at = clock.now();
    const Duration wait = state.next_tick(failed_at) - failed_at;
    EXPECT_GE(wait, limits.backoff_first / 2);
    EXPECT_LE(wait, limits.backoff_most);
    longest = std::max(longest, wait);
    clock.advance(wait - 1ns);
    EXPECT_FALSE(any<Connect>(apply(Tick{})));
    clock.advance(1ns);
  }
  EXPECT_GE(longest, limits.backoff_most / 2);
}

TEST_F(AgentStateTest, refused_registration_ends_it_and_a_broken_session_does_not) {
  apply(Tick{});
  apply(SessionEnded{unavailable("refused")});
  open_session();
  apply(SessionEnded{invalid_argument("a report was malformed")});
  while (!any<Connect>(apply(Tick{}))) clock.advance(100ms);
  const Commands commands = apply(SessionEnded{invalid_argument("worker: a name expected")});
  ASSERT_EQ(commands.size(), 1u);
  EXPECT_EQ(std::get<End>(commands[0]).status.code(), StatusCode::kInvalidArgument);
}

TEST_F(AgentStateTest, worker_whose_name_was_taken_ends_and_does_not_take_it_back) {
  // Two processes of one name would throw each other out for ever, and every job with them.
  open_session();
  const Commands commands = apply(SessionEnded{aborted("a newer process took its name (incarnation 41)")});
  ASSERT_EQ(commands.size(), 1u);
  EXPECT_EQ(
      message(std::get<End>(commands[0]).status),
      "the coordinator refuses worker w1 incarnation 40: a newer process took its name (incarnation 41)");
}

TEST_F(AgentStateTest, silent_registration_is_given_up) {
  apply(Tick{});
  clock.advance(limits.connect_timeout);
  EXPECT_TRUE(any<CloseSession>(apply(Tick{})));
}

TEST_F(AgentStateTest, heartbeat_is_sent_twice_a_lease) {
  open_session();
  int sent = 0;
  for (int i = 0; i < 100; ++i) {
    clock.advance(100ms);
    apply(SessionHeard{});
    sent += static_cast<int>(reports<HeartbeatDue>(apply(Tick{})).size());
  }
  EXPECT_EQ(sent, 10);
}

TEST_F(AgentStateTest, silent_coordinator_ends_the_session_after_its_leases) {
  // A coordinator that is stopped, or cut off, keeps its stream open: only silence tells.
  open_session();
  clock.advance(6s - 1ns);
  EXPECT_FALSE(any<CloseSession>(apply(Tick{})));
  clock.advance(1ns);
  EXPECT_TRUE(any<CloseSession>(apply(Tick{})));
}

TEST_F(AgentStateTest, assignment_is_spawned_and_its_readiness_reported_with_the_real_pid) {
  open_session();
  const Commands commands = apply(AssignReceived{assignment()});
  ASSERT_TRUE(any<Spawn>(commands));
  EXPECT_EQ(std::get<Spawn>(commands.front()).assignment.worker, "w1");
  EXPECT_EQ(std::get<Spawn>(commands.front()).assignment.bind_address, "127.0.0.1");
  EXPECT_EQ(std::get<Spawn>(commands.front()).assignment.threads, 3);
  apply(ExecutorSpawned{0, ok_status(), 1234});
  const auto ready =
      reports<RankReady>(apply(ExecutorSaid{0, RankReady{assignment().attempt, RankIndex(0), 9, "cpu"}}));
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].executor_pid, 1234);
}

TEST_F(AgentStateTest, assignment_of_another_incarnation_is_refused) {
  open_session();
  Assignment stale = assignment();
  stale.attempt.incarnation = kIncarnation - 1;
  const Commands commands = apply(AssignReceived{stale});
  EXPECT_FALSE(any<Spawn>(commands));
  const auto failures = reports<RankFailed>(commands);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].attempt, stale.attempt);
  EXPECT_THAT(failures[0].reason, HasSubstr("incarnation 40 expected, 39 received"));
}

TEST_F(AgentStateTest, assignment_of_an_older_attempt_is_refused) {
  open_session();
  start(assignment("a", 3));
  apply(ExecutorExited{0, 0, 0, ""});
  const Commands commands = apply(AssignReceived{assignment("a", 2)});
  EXPECT_FALSE(any<Spawn>(commands));
  ASSERT_EQ(reports<RankFailed>(commands).size(), 1u);
  EXPECT_THAT(reports<RankFailed>(commands)[0].reason, HasSubstr("attempt 2 is stale"));
  EXPECT_TRUE(any<Spawn>(apply(AssignReceived{assignment("a", 4)})));
}

TEST_F(AgentStateTest, assignment_for_a_busy_or_absent_device_is_refused) {
  open_session();
  start(assignment("a"));
  Commands busy = apply(AssignReceived{assignment("b")});
  EXPECT_FALSE(any<Spawn>(busy));
  EXPECT_FALSE(any<Kill>(busy));
  ASSERT_EQ(reports<RankFailed>(busy).size(), 1u);
  EXPECT_THAT(reports<RankFailed>(busy)[0].reason, HasSubstr("device 0 is busy with job a attempt 1 rank 0"));
  Commands absent = apply(AssignReceived{assignment("b", 1, 0, 2)});
  ASSERT_EQ(reports<RankFailed>(absent).size(), 1u);
  EXPECT_THAT(reports<RankFailed>(absent)[0].reason, HasSubstr("0..1"));
  EXPECT_TRUE(any<Spawn>(apply(AssignReceived{assignment("b", 1, 0, 1)})));
}

TEST_F(AgentStateTest, same_assignment_twice_is_one) {
  open_session();
  start(assignment());
  EXPECT_TRUE(apply(AssignReceived{assignment()}).empty());
}

TEST_F(AgentStateTest, killed_executor_is_a_failure_with_step_and_signal) {
  open_session();
  start(assignment());
  StepReport report;
  report.attempt = assignment().attempt;
  report.rank = RankIndex(0);
  report.step = 6;
  EXPECT_EQ(reports<StepReport>(apply(ExecutorSaid{0, report})).size(), 1u);
  const Commands commands = apply(ExecutorExited{0, -1, 9, "bad allocation"});
  const auto failures = reports<RankFailed>(commands);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].step, 7);
  EXPECT_EQ(failures[0].signal, 9);
  EXPECT_EQ(failures[0].exit_code, -1);
  EXPECT_THAT(failures[0].reason, HasSubstr("executor 1234 on worker w1 was killed by signal 9 in step 7"));
  EXPECT_THAT(failures[0].reason, HasSubstr("bad allocation"));
  EXPECT_EQ(reports<RankStopped>(commands).size(), 1u);
  EXPECT_EQ(state.busy_devices(), 0);
}

TEST_F(AgentStateTest, executor_that_dies_before_it_is_ready_fails_before_the_first_step) {
  open_session();
  apply(AssignReceived{assignment()});
  apply(ExecutorSpawned{0, ok_status(), 1234});
  const auto failures = reports<RankFailed>(apply(ExecutorExited{0, 3, 0, ""}));
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].step, -1);
  EXPECT_THAT(failures[0].reason, HasSubstr("exited with code 3 before its first step"));
}

TEST_F(AgentStateTest, executor_that_cannot_be_started_fails_its_rank_and_frees_the_device) {
  open_session();
  apply(AssignReceived{assignment()});
  const Commands commands = apply(ExecutorSpawned{0, unavailable("no more processes"), 0});
  ASSERT_EQ(reports<RankFailed>(commands).size(), 1u);
  EXPECT_THAT(reports<RankFailed>(commands)[0].reason, HasSubstr("no more processes"));
  EXPECT_EQ(state.busy_devices(), 0);
}

TEST_F(AgentStateTest, finished_executor_is_no_failure) {
  open_session();
  start(assignment());
  EXPECT_EQ(
      reports<RankFinished>(apply(ExecutorSaid{0, RankFinished{assignment().attempt, RankIndex(0), {}}}))
          .size(),
      1u);
  const Commands commands = apply(ExecutorExited{0, 0, 0, ""});
  EXPECT_TRUE(reports<RankFailed>(commands).empty());
  EXPECT_EQ(reports<RankStopped>(commands).size(), 1u);
}

TEST_F(AgentStateTest, finished_executor_that_stays_is_killed) {
  open_session();
  start(assignment());
  apply(ExecutorSaid{0, RankFinished{assignment().attempt, RankIndex(0), {}}});
  clock.advance(limits.exit_grace);
  apply(SessionHeard{});
  const Commands commands = apply(Tick{});
  EXPECT_TRUE(any<Kill>(commands));
  EXPECT_TRUE(reports<RankFailed>(commands).empty());
}

TEST_F(AgentStateTest, failure_is_reported_once) {
  // The executor's own words are better than its exit code.
  open_session();
  start(assignment());
  EXPECT_EQ(reports<RankFailed>(
                apply(ExecutorSaid{0, RankFailed{assignment().attempt, RankIndex(0), 2, "no data", 0, 0}}))
                .size(),
            1u);
  const Commands commands = apply(ExecutorExited{0, 1, 0, ""});
  EXPECT_TRUE(reports<RankFailed>(commands).empty());
  EXPECT_EQ(reports<RankStopped>(commands).size(), 1u);
}

TEST_F(AgentStateTest, abort_kills_and_reports_only_the_stop) {
  open_session();
  start(assignment());
  EXPECT_TRUE(any<Kill>(apply(AbortReceived{assignment().attempt, RankIndex(0), "cancelled"})));
  EXPECT_TRUE(apply(ExecutorSaid{0, RankFinished{assignment().attempt, RankIndex(0), {}}}).empty());
  const Commands commands = apply(ExecutorExited{0, -1, 9, ""});
  EXPECT_TRUE(reports<RankFailed>(commands).empty());
  EXPECT_EQ(reports<RankStopped>(commands).size(), 1u);
}

TEST_F(AgentStateTest, abort_of_what_is_not_here_is_answered_and_touches_nobody) {
  // The coordinator may repeat an abort whose answer was lost; the device may have a new rank by then.
  open_session();
  start(assignment("a", 2));
  const Commands commands = apply(AbortReceived{assignment("a", 1).attempt, RankIndex(0), "old"});
  EXPECT_FALSE(any<Kill>(commands));
  ASSERT_EQ(reports<RankStopped>(commands).size(), 1u);
  EXPECT_EQ(reports<RankStopped>(commands)[0].attempt.attempt, 1);
}

TEST_F(AgentStateTest, executor_that_speaks_for_another_rank_is_stopped) {
  open_session();
  start(assignment());
  StepReport report;
  report.attempt = assignment("b").attempt;
  report.rank = RankIndex(0);
  const Commands commands = apply(ExecutorSaid{0, report});
  EXPECT_TRUE(any<Kill>(commands));
  EXPECT_TRUE(reports<StepReport>(commands).empty());
  EXPECT_EQ(reports<RankFailed>(commands).size(), 1u);
}

TEST_F(AgentStateTest, broker_calls_pass_for_the_own_attempt_only) {
  open_session();
  start(assignment());
  const CommunicatorKey own{assignment().attempt, "data 1", RankIndex(3), "address"};
  EXPECT_TRUE(any<CallBroker>(apply(ExecutorSaid{0, codec::BrokerLookUp{1, own, 1000}})));
  EXPECT_TRUE(any<CallBroker>(apply(ExecutorSaid{0, codec::BrokerPublish{2, own, "x"}})));
  // Publishing for another attempt would misdirect its ranks.
  const CommunicatorKey other{assignment("b").attempt, "data 1", RankIndex(3), "address"};
  EXPECT_TRUE(any<Kill>(apply(ExecutorSaid{0, codec::BrokerPublish{3, other, "x"}})));
}

TEST_F(AgentStateTest, broken_frames_end_the_executor) {
  open_session();
  start(assignment());
  const Commands commands = apply(ExecutorBroke{0, invalid_argument("no frame")});
  EXPECT_TRUE(any<Kill>(commands));
  EXPECT_EQ(reports<RankFailed>(commands).size(), 1u);
}

TEST_F(AgentStateTest, executor_that_hangs_up_and_stays_is_ended) {
  open_session();
  start(assignment());
  apply(ExecutorHungUp{0});
  EXPECT_FALSE(any<Kill>(apply(Tick{})));
  clock.advance(limits.hang_up_grace);
  const Commands commands = apply(Tick{});
  EXPECT_TRUE(any<Kill>(commands));
  EXPECT_EQ(reports<RankFailed>(commands).size(), 1u);
}

TEST_F(AgentStateTest, ranks_go_on_without_a_coordinator_until_the_orphan_bound) {
  open_session();
  start(assignment());
  apply(SessionEnded{unavailable("gone")});
  for (Duration away{}; away < limits.orphan_bound; away += 100ms) {
    for (const AgentCommand& command : apply(Tick{})) {
      ASSERT_FALSE(std::holds_alternative<Kill>(command)) << to_seconds(away);
      if (std::holds_alternative<Connect>(command)) apply(SessionEnded{unavailable("gone")});
    }
    clock.advance(100ms);
  }
  const Commands commands = apply(Tick{});
  EXPECT_TRUE(any<Kill>(commands));
  ASSERT_EQ(reports<RankFailed>(commands).size(), 1u);
  EXPECT_THAT(reports<RankFailed>(commands)[0].reason, HasSubstr("no coordinator for 30 s"));
}

TEST_F(AgentStateTest, new_session_hears_of_the_ranks_that_outlived_the_last) {
  open_session();
  start(assignment());
  apply(SessionEnded{unavailable("gone")});
  while (!any<Connect>(apply(Tick{}))) clock.advance(100ms);
  const auto ready = reports<RankReady>(apply(SessionOpened{2s, 3, "c-2"}));
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].attempt, assignment().attempt);
  EXPECT_EQ(ready[0].executor_pid, 1234);
}

TEST_F(AgentStateTest, assignment_over_a_rank_of_an_earlier_session_takes_its_place) {
  // A coordinator that lost its memory of a rank must not find the device blocked by it.
  open_session();
  start(assignment("a"));
  apply(SessionEnded{unavailable("gone")});
  open_session();
  Commands commands = apply(AssignReceived{assignment("b")});
  EXPECT_TRUE(any<Kill>(commands));
  EXPECT_FALSE(any<Spawn>(commands));
  commands = apply(ExecutorExited{0, -1, 9, ""});
  EXPECT_TRUE(reports<RankFailed>(commands).empty());
  ASSERT_EQ(reports<RankStopped>(commands).size(), 1u);
  EXPECT_EQ(reports<RankStopped>(commands)[0].attempt.job, "a");
  EXPECT_TRUE(any<Spawn>(commands));
}

TEST_F(AgentStateTest, abort_of_a_waiting_assignment_drops_it) {
  open_session();
  start(assignment("a"));
  apply(SessionEnded{unavailable("gone")});
  open_session();
  apply(AssignReceived{assignment("b")});
  EXPECT_EQ(
      reports<RankStopped>(apply(AbortReceived{assignment("b").attempt, RankIndex(0), "cancelled"})).size(),
      1u);
  EXPECT_FALSE(any<Spawn>(apply(ExecutorExited{0, -1, 9, ""})));
}

TEST_F(AgentStateTest, drain_says_so_stops_the_ranks_and_ends) {
  open_session();
  start(assignment());
  Commands commands = apply(DrainRequested{"Terminated"});
  EXPECT_EQ(reports<DrainNotice>(commands).size(), 1u);
  EXPECT_TRUE(any<Kill>(commands));
  ASSERT_EQ(reports<RankFailed>(commands).size(), 1u);
  EXPECT_THAT(reports<RankFailed>(commands)[0].reason, HasSubstr("worker w1 drains (Terminated)"));
  EXPECT_TRUE(reports<RankFailed>(apply(AssignReceived{assignment("b")})).size() == 1u);
  commands = apply(ExecutorExited{0, -1, 9, ""});
  EXPECT_TRUE(any<FinishSession>(commands));
  EXPECT_FALSE(any<End>(commands));
  EXPECT_TRUE(any<End>(apply(SessionEnded{ok_status()})));
}

TEST_F(AgentStateTest, drain_without_a_session_ends_when_the_executors_are_gone) {
  EXPECT_TRUE(any<End>(apply(DrainRequested{"Terminated"})));
}

TEST_F(AgentStateTest, drain_ends_at_its_bound_whatever_hangs) {
  open_session();
  start(assignment());
  apply(DrainRequested{"Terminated"});
  clock.advance(limits.drain_bound - 1ns);
  apply(SessionHeard{});
  EXPECT_FALSE(any<End>(apply(Tick{})));
  clock.advance(1ns);
  EXPECT_TRUE(any<End>(apply(Tick{})));
}

TEST_F(AgentStateTest, next_tick_is_ahead_whenever_a_tick_has_just_passed) {
  // A deadline that stays in the past would make the agent spin.
  open_session();
  start(assignment());
  apply(SessionEnded{unavailable("gone")});
  for (int i = 0; i < 1000; ++i) {
    for (const AgentCommand& command : apply(Tick{})) {
      if (std::holds_alternative<Connect>(command) && i % 3 == 0) apply(SessionEnded{unavailable("gone")});
      if (std::holds_alternative<CloseSession>(command)) apply(SessionEnded{unavailable("gone")});
    }
    const Duration wait = state.next_tick(clock.now()) - clock.now();
    ASSERT_GT(wait, 0ns) << i;
    ASSERT_LE(wait, 1s);
    clock.advance(wait);
  }
}

}  // namespace
}  // namespace penstock::worker
