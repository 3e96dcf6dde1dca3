#include "coordinator/core/fleet/fleet.h"

#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

Status closed_with(const std::vector<Command>& commands) {
  const auto closes = of<CloseSession>(commands);
  return closes.empty() ? ok_status() : closes.back().status;
}

TEST(Registration, is_answered_with_the_lease) {
  World world;
  const auto commands = world.tell(SessionOpened{1, registration("worker-0")});
  const auto sends = of<SendToWorker>(commands);
  ASSERT_EQ(sends.size(), 1u);
  const auto& registered = std::get<Registered>(sends[0].message);
  EXPECT_EQ(registered.lease_ms, 2000);
  EXPECT_EQ(registered.leases_missed, 3);
}

TEST(Registration, malformed_one_is_refused_with_the_field) {
  World world;
  const auto refused = [&](Registration r) {
    return message(closed_with(world.tell(SessionOpened{9, std::move(r)})));
  };
  Registration r = registration("");
  EXPECT_THAT(refused(r), HasSubstr("worker: expected a name"));
  EXPECT_THAT(refused(registration("a b")), HasSubstr("without spaces"));
  EXPECT_THAT(refused(registration(std::string(256, 'w'))), HasSubstr("1 to 255"));
  EXPECT_THAT(refused(registration("w", 0)), HasSubstr("incarnation: expected a positive number, found 0"));
  EXPECT_THAT(refused(registration("w", 1, 0)), HasSubstr("devices: expected 1 to 256, found 0"));
  EXPECT_THAT(refused(registration("w", 1, 257)), HasSubstr("found 257"));
  r = registration("w", 1, 2);
  r.devices[1].index = 0;
  EXPECT_THAT(refused(r), HasSubstr("device 0: expected once, found twice"));
  r.devices[1].index = -1;
  EXPECT_THAT(refused(r), HasSubstr("index from 0"));
  EXPECT_TRUE(world.state.fleet.workers.empty());
}

TEST(Registration, older_incarnation_is_aborted) {
  // A process that was cut off and replaced must not come back into its name.
  World world;
  world.open(registration("worker-0", 41));
  EXPECT_EQ(closed_with(world.tell(SessionOpened{7, registration("worker-0", 40)})).code(),
            StatusCode::kAborted);
  world.tell(SessionClosed{world.sessions["worker-0"], "gone"});
  EXPECT_EQ(closed_with(world.tell(SessionOpened{8, registration("worker-0", 40)})).code(),
            StatusCode::kAborted);
  EXPECT_EQ(world.state.fleet.find("worker-0")->incarnation, 41);
}

TEST(Registration, newer_incarnation_takes_over_and_its_predecessors_job_fails) {
  World world;
  const std::string name = world.run();
  const SessionId before = world.sessions["worker-1"];
  const auto commands = world.tell(SessionOpened{77, registration("worker-1", 2)});
  EXPECT_EQ(closed_with(commands).code(), StatusCode::kAborted);
  EXPECT_EQ(of<CloseSession>(commands)[0].session, before);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_THAT(world.reason_of(name), HasSubstr("worker worker-1"));
  // Its executor died with the process; worker-0's is still being stopped.
  EXPECT_EQ(take_census(world.state).devices_free, 1);
  // What the old session still says is nobody's.
  EXPECT_TRUE(world.tell(SessionSaid{before, Heartbeat{1}}).empty());
  EXPECT_TRUE(world.tell(SessionClosed{before, "late"}).empty());
  EXPECT_TRUE(world.state.fleet.find("worker-1")->is_open());
}

TEST(Registration, same_process_that_comes_back_stops_what_it_ran_before_its_device_is_free) {
  // The stream may break while the executors go on.
  World world;
  const std::string name = world.run();
  const AttemptKey key = world.key(name, 1);
  world.tell(SessionClosed{world.sessions["worker-1"], "connection reset"});
  EXPECT_EQ(world.state_of(name), Failed);
  world.sessions["worker-1"] = 99;
  const auto commands = world.tell(SessionOpened{99, registration("worker-1", 1)});
  const auto aborts = messages<Abort>(world, commands, "worker-1");
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].attempt, key);
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  // It says that it is still there, and is not told twice.
  EXPECT_TRUE(messages<Abort>(world, world.say("worker-1", RankReady{key, RankIndex(1), 1, ""})).empty());
  world.say("worker-1", ExecutorStopped{key, RankIndex(1)});
  EXPECT_EQ(take_census(world.state).devices_free, 1);
}

TEST(Registration, fleet_is_bounded_and_a_lost_worker_makes_room) {
  Options options;
  options.workers = 2;
  World world(options);
  world.open(registration("a"));
  world.open(registration("b"));
  EXPECT_EQ(closed_with(world.tell(SessionOpened{9, registration("c")})).code(),
            StatusCode::kResourceExhausted);
  world.tell(SessionClosed{world.sessions["a"], "gone"});
  world.open(registration("c"));
  EXPECT_EQ(world.state.fleet.workers.size(), 2u);
  EXPECT_FALSE(world.state.fleet.workers.contains("a"));
}

TEST(Leases, silent_worker_is_lost_after_three_and_its_session_closed) {
  World world;
  const std::string name = world.run();
  for (int i = 0; i < 59; ++i) {
    world.say("worker-0", Heartbeat{i});
    world.tick(100ms);
  }
  EXPECT_EQ(world.state_of(name), Running);
  world.say("worker-0", Heartbeat{99});
  const auto commands = world.tick(100ms);
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(world.reason_of(name),
            "rank 1 was lost in step 0: worker worker-1: silent for 6.0 s, 3 leases of 2 s");
  EXPECT_EQ(closed_with(commands).code(), StatusCode::kUnavailable);
  EXPECT_EQ(messages<Abort>(world, commands, "worker-0").size(), 1u);
  EXPECT_EQ(worker_views(world.state.fleet)[1].state, "lost");
  bool counted = false;
  for (const Observed& seen : of<Observed>(commands))
    counted |= std::holds_alternative<LeaseExpired>(seen.observation);
  EXPECT_TRUE(counted);
}

TEST(Leases, every_message_renews) {
  World world;
  world.open(registration("worker-0"));
  for (int i = 0; i < 10; ++i) {
    world.tick(4s);
    const auto commands = world.say("worker-0", Heartbeat{i});
    const auto acks = messages<HeartbeatAck>(world, commands, "worker-0");
    ASSERT_EQ(acks.size(), 1u);
    EXPECT_EQ(acks[0].sequence, i);
  }
  EXPECT_EQ(worker_views(world.state.fleet)[0].state, "free");
}

TEST(Loss, closed_stream_fails_the_job_at_once_and_tells_the_others) {
  World world;
  const std::string name = world.run({.pipeline = 3});
  world.all_report(name, 0);
  const auto commands = world.tell(SessionClosed{world.sessions["worker-1"], "stream closed"});
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(world.reason_of(name), "rank 1 was lost in step 1: worker worker-1: stream closed");
  EXPECT_EQ(messages<Abort>(world, commands).size(), 2u);
}

TEST(Loss, lost_worker_is_forgotten_after_a_while) {
  World world;
  world.open(registration("worker-0"));
  world.tell(SessionClosed{world.sessions["worker-0"], "gone"});
  world.tick(599s);
  EXPECT_EQ(world.state.fleet.workers.size(), 1u);
  world.tick(1s);
  EXPECT_TRUE(world.state.fleet.workers.empty());
}

TEST(Stopping, executor_that_does_not_answer_is_told_again_and_given_up_after_the_orphan_bound) {
  World world;
  const std::string name = world.run();
  world.tell(Cancel{1, name, "bob"});
  int told = 0;
  for (int i = 0; i < 399; ++i) {
    world.say("worker-0", Heartbeat{i});
    world.say("worker-1", Heartbeat{i});
    told += static_cast<int>(messages<Abort>(world, world.tick(100ms), "worker-0").size());
  }
  EXPECT_EQ(told, 19);
  EXPECT_EQ(take_census(world.state).devices_free, 0);
  world.say("worker-0", Heartbeat{400});
  world.tick(100ms);
  EXPECT_EQ(take_census(world.state).devices_free, 2);
}

TEST(Drain, draining_worker_fails_its_job_gets_no_other_and_leaves_the_list_when_it_is_gone) {
  World world;
  const std::string name = world.run();
  const auto commands = world.say("worker-1", coordinator::Draining{"SIGTERM"});
  EXPECT_EQ(world.state_of(name), Failed);
  EXPECT_EQ(world.reason_of(name), "rank 1 was stopped in step 0: worker worker-1 drains: SIGTERM");
  EXPECT_EQ(messages<Abort>(world, commands).size(), 2u);  // its own rank too
  world.stopped(name, 0);
  world.stopped(name, 1);
  EXPECT_EQ(worker_views(world.state.fleet)[1].state, "draining");
  const std::string next = world.submit({.name = "next"});
  world.tick();
  EXPECT_EQ(world.reason_of(next), "waits for 1 more cpu device: 2 needed, 1 free (worker-1 draining)");
  world.tell(SessionClosed{world.sessions["worker-1"], "done"});
  EXPECT_EQ(world.state.fleet.workers.size(), 1u);
}

TEST(Views, a_daemon_with_several_devices_appears_once_for_each) {
  World world;
  world.open(registration("big", 3, 2, "host-a"));
  const std::string name = world.submit({.pipeline = 2});
  world.tick();
  world.ready(name, 1);
  const auto views = worker_views(world.state.fleet);
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[1].name, "big");
  EXPECT_EQ(views[1].device, "cpu:1");
  EXPECT_EQ(views[1].job, name);
  EXPECT_EQ(views[1].rank, RankIndex(1));
  EXPECT_EQ(views[1].executor_pid, 4001);
  EXPECT_EQ(views[1].state, "assigned");
  EXPECT_EQ(views[0].executor_pid, 0);
}

}  // namespace
}  // namespace penstock::coordinator
