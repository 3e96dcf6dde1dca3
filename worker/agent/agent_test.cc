#include "worker/agent/agent.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <future>
#include <thread>

#include "proto/codec/wire.h"
#include "worker/agent/health_server.h"
#include "worker/agent/internal/fake_coordinator.h"

namespace penstock::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kIncarnation = 40;

// Runs or stops; a zombie does not run.
bool process_runs(pid_t pid) {
  std::string line;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  if (!std::getline(stat, line)) return false;
  return line[line.rfind(')') + 2] != 'Z';
}

bool gone_within(pid_t pid, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (process_runs(pid)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// The answer to `request`, both as bytes, of a method whose messages are not ours.
std::string ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const grpc::Slice slice(request);
  grpc::ByteBuffer question(&slice, 1);
  grpc::ByteBuffer answer;
  std::promise<grpc::Status> answered;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &question, &answer,
                 [&](const grpc::Status& status) { answered.set_value(status); });
  const grpc::Status status = answered.get_future().get();
  EXPECT_TRUE(status.ok()) << method << ": " << status.error_message();
  grpc::Slice whole;
  EXPECT_TRUE(answer.DumpToSingleSlice(&whole).ok());
  return {reinterpret_cast<const char*>(whole.begin()), whole.size()};
}

class AgentTest : public testing::Test {
 protected:
  void SetUp() override { start({}); }

  void TearDown() override { stop(); }

  void start(const AgentLimits& limits) {
    AgentOptions options;
    options.coordinator = coordinator->address();
    options.registration.principal = "tester";
    options.registration.worker = "w1";
    options.registration.host_id = "host";
    options.registration.devices = {DeviceSlot{"cpu", 0, "fake"}, DeviceSlot{"cpu", 1, "fake"}};
    options.registration.incarnation = kIncarnation;
    options.registration.pid = getpid();
    options.registration.metrics_address = "127.0.0.1:9";
    options.registration.data_address = "127.0.0.1";
    options.executor.arguments = {"fake-executor", "--executor"};
    options.limits = limits;
    options.draining = [this] { health->set_serving(false); };
    agent = std::make_unique<Agent>(std::move(options), registry);
    thread = std::thread([this] {
      ending = agent->run();
      ended = true;
    });
  }
  void stop() {
    if (!thread.joinable()) return;
    agent->drain("the test ends");
    thread.join();
  }
  void restart(const AgentLimits& limits) {
    stop();
    start(limits);
  }

  v1::AttemptKey key(int64_t attempt = 1, int64_t incarnation = kIncarnation) {
    v1::AttemptKey made;
    made.set_job("job");
    made.set_attempt(attempt);
    made.set_incarnation(incarnation);
    return made;
  }
  void assign(const std::string& script, const v1::AttemptKey& attempt, int device = 0) {
    v1::CoordinatorMessage message;
    v1::Assign& made = *message.mutable_assign();
    *made.mutable_attempt() = attempt;
    made.set_device(device);
    made.set_spec_yaml(script);
    made.add_split()->add_items("embedding");
    *made.mutable_split(0)->add_items() = "0";
    *made.mutable_split(0)->add_items() = "head";
    made.mutable_program()->set_ranks(1);
    made.mutable_program()->set_stages(1);
    made.mutable_program()->set_microbatches(1);
    made.mutable_program()->set_updates(1);
    made.add_rank_hosts("host");
    coordinator->send(message);
  }
  void assign(const std::string& script) { assign(script, key()); }
  void abort(const v1::AttemptKey& attempt) {
    v1::CoordinatorMessage message;
    *message.mutable_abort()->mutable_attempt() = attempt;
    message.mutable_abort()->set_reason("cancelled");
    coordinator->send(message);
  }

  std::optional<v1::WorkerMessage> await(v1::WorkerMessage::MessageCase wanted, double seconds = 20) {
    return coordinator->await([wanted](const v1::WorkerMessage& m) { return m.message_case() == wanted; },
                              seconds);
  }
  void await_registration() { ASSERT_TRUE(await(v1::WorkerMessage::kRegister)); }
  // Pid of the executor, once it is ready.
  pid_t await_ready() {
    const auto ready = await(v1::WorkerMessage::kRankReady);
    return ready ? static_cast<pid_t>(ready->rank_ready().executor_pid()) : -1;
  }
  // The next log line with `part` in it; lines before it are passed over.
  std::string await_line(const std::string& part) {
    const auto in_lines = [&] {
      for (; !lines.empty(); lines.pop_front()) {
        if (lines.front().find(part) != std::string::npos) return true;
      }
      return false;
    };
    if (!in_lines())
      coordinator->await([&](const v1::WorkerMessage& message) {
        lines.insert(lines.end(), message.log_batch().lines().begin(), message.log_batch().lines().end());
        return in_lines();
      });
    if (lines.empty()) return "";
    std::string found = lines.front();
    lines.pop_front();
    return found;
  }
  std::string metrics() { return prometheus::TextSerializer().Serialize(registry->Collect()); }

  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<FakeCoordinator> coordinator = std::make_unique<FakeCoordinator>();
  std::deque<std::string> lines;
  std::unique_ptr<Agent> agent;
  std::unique_ptr<HealthServer> health = *HealthServer::start("127.0.0.1:0");
  Status ending;  // of run(), once the thread is joined
  std::atomic<bool> ended{false};
  std::thread thread;
};

TEST_F(AgentTest, worker_registers_first_and_says_who_it_is) {
  const auto first = coordinator->await([](const v1::WorkerMessage&) { return true; });
  ASSERT_TRUE(first && first->has_register_());
  EXPECT_EQ(first->register_().worker(), "w1");
  EXPECT_EQ(first->register_().caller().principal(), "tester");
  EXPECT_EQ(first->register_().devices_size(), 2);
  EXPECT_EQ(first->register_().incarnation(), kIncarnation);
  EXPECT_TRUE(await(v1::WorkerMessage::kHeartbeat));
}

TEST_F(AgentTest, assigned_rank_reports_and_its_device_is_free_after_it_has_finished) {
  await_registration();
  assign("ready\nstep 0\nstep 1\nfinish");
  EXPECT_GT(await_ready(), 0);
  const auto report = await(v1::WorkerMessage::kStepReport);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->step_report().loss(), 2.5);
  EXPECT_TRUE(await(v1::WorkerMessage::kRankFinished));
  EXPECT_TRUE(await(v1::WorkerMessage::kExecutorStopped));
  assign("ready\nwait", key(2));
  EXPECT_GT(await_ready(), 0);
}

TEST_F(AgentTest, metrics_show_the_last_step_of_each_rank) {
  await_registration();
  assign("ready\nstep 0\nstep 1\nwait");
  await_ready();
  await(v1::WorkerMessage::kStepReport);
  await(v1::WorkerMessage::kStepReport);
  const std::string page = metrics();
  EXPECT_THAT(page, HasSubstr("penstock_rank_step{rank=\"0\",training_job=\"job\"} 2"));
  EXPECT_THAT(page, HasSubstr("penstock_rank_loss{rank=\"0\",training_job=\"job\"} 2.5"));
  EXPECT_THAT(page, HasSubstr("penstock_stage_seconds{action=\"B\",stage=\"0\",training_job=\"job\"} 0.02"));
  EXPECT_THAT(page, Not(HasSubstr("action=\"W\"")));
  EXPECT_THAT(page, HasSubstr("penstock_rank_step_seconds_count{rank=\"0\",training_job=\"job\"} 2"));
  EXPECT_THAT(
      page,
      HasSubstr("penstock_rank_memory_peak_bytes{kind=\"parameters\",rank=\"0\",training_job=\"job\"} 4096"));
  EXPECT_THAT(page, HasSubstr("penstock_worker_session_open 1"));
}

TEST_F(AgentTest, killed_executor_is_reported_within_a_second) {
  await_registration();
  assign("ready\nstep 4\nwait");
  const pid_t pid = await_ready();
  ASSERT_GT(pid, 0);
  await(v1::WorkerMessage::kStepReport);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const auto failed = await(v1::WorkerMessage::kRankFailed, 1);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->rank_failed().signal(), SIGKILL);
  EXPECT_EQ(failed->rank_failed().exit_code(), -1);
  EXPECT_EQ(failed->rank_failed().step(), 5);
  EXPECT_THAT(failed->rank_failed().reason(), HasSubstr("killed by signal 9 in step 5"));
  EXPECT_TRUE(await(v1::WorkerMessage::kExecutorStopped, 1));
}

TEST_F(AgentTest, crash_is_reported_with_the_last_words) {
  await_registration();
  assign("ready\nprint cannot open /data/text.txt\nexit 7");
  const auto failed = await(v1::WorkerMessage::kRankFailed);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->rank_failed().exit_code(), 7);
  EXPECT_THAT(failed->rank_failed().reason(), HasSubstr("cannot open /data/text.txt"));
}

TEST_F(AgentTest, what_an_executor_says_right_before_its_end_is_not_lost) {
  await_registration();
  assign("ready\nstep 0\nfinish\nexit 0");
  EXPECT_TRUE(await(v1::WorkerMessage::kRankFinished));
  const auto stopped = coordinator->await(
      [](const v1::WorkerMessage& m) { return m.has_rank_failed() || m.has_executor_stopped(); });
  ASSERT_TRUE(stopped);
  EXPECT_TRUE(stopped->has_executor_stopped());
}

TEST_F(AgentTest, executor_inherits_nothing_but_its_socket_and_its_output) {
  // A descriptor that leaks into a child keeps a port or a peer alive; an ignored signal would outlive the
  // daemon.
  signal(SIGPIPE, SIG_IGN);
  await_registration();
  assign("inspect\nwait");
  EXPECT_EQ(await_line("descriptors"), "descriptors 0 1 2 3");
  EXPECT_EQ(await_line("openmp"), "openmp 1 passive");
  EXPECT_EQ(await_line("SigBlk"), "SigBlk:\t0000000000000000");
  const std::string ignored = await_line("SigIgn");
  ASSERT_GT(ignored.size(), 8u);
  // Of the standard signals, none; two above them are the C library's own.
  EXPECT_EQ(std::stoull(ignored.substr(8), nullptr, 16) & 0x7fffffff, 0u) << ignored;
  signal(SIGPIPE, SIG_DFL);
}

TEST_F(AgentTest, abort_ends_the_executor_and_frees_the_device) {
  await_registration();
  assign("ready\nlinger");
  const pid_t pid = await_ready();
  abort(key());
  const auto next = coordinator->await(
      [](const v1::WorkerMessage& m) { return m.has_rank_failed() || m.has_executor_stopped(); });
  ASSERT_TRUE(next);
  EXPECT_TRUE(next->has_executor_stopped());
  EXPECT_FALSE(process_runs(pid));
}

TEST_F(AgentTest, stale_assignment_is_refused) {
  await_registration();
  assign("ready\nwait", key(1, kIncarnation - 1));
  auto failed = await(v1::WorkerMessage::kRankFailed);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->rank_failed().attempt().incarnation(), kIncarnation - 1);
  assign("ready\nwait", key(5));
  await_ready();
  abort(key(5));
  await(v1::WorkerMessage::kExecutorStopped);
  assign("ready\nwait", key(4));
  failed = await(v1::WorkerMessage::kRankFailed);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->rank_failed().attempt().attempt(), 4);
}

TEST_F(AgentTest, malformed_assignment_is_refused_with_the_field) {
  await_registration();
  v1::CoordinatorMessage message;
  *message.mutable_assign()->mutable_attempt() = key();
  message.mutable_assign()->mutable_program()->set_ranks(-3);
  coordinator->send(message);
  coordinator->send(v1::CoordinatorMessage());  // of a newer protocol: nothing known is set
  message.mutable_assign()->mutable_attempt()->set_job("");
  coordinator->send(message);
  const auto failed = await(v1::WorkerMessage::kRankFailed);
  ASSERT_TRUE(failed);
  EXPECT_THAT(failed->rank_failed().reason(), HasSubstr("worker w1 refused its assignment"));
  assign("ready\nwait");
  EXPECT_GT(await_ready(), 0);
}

TEST_F(AgentTest, output_is_forwarded_line_by_line) {
  await_registration();
  assign("print hello\nprint world\nwait");
  EXPECT_EQ(await_line("hello"), "hello");
  EXPECT_EQ(await_line("world"), "world");
}

TEST_F(AgentTest, flood_of_output_is_bounded_and_every_line_counted) {
  await_registration();
  assign("flood 100000\nwait");
  int64_t sent = 0;
  int64_t dropped = 0;
  size_t longest_batch = 0;
  coordinator->await([&](const v1::WorkerMessage& message) {
    sent += message.log_batch().lines_size();
    dropped += message.log_batch().dropped();
    longest_batch = std::max(longest_batch, static_cast<size_t>(message.log_batch().lines_size()));
    return sent + dropped >= 100000;
  });
  EXPECT_EQ(sent + dropped, 100000);
  EXPECT_LE(longest_batch, 2 * LineCapture::kMostLines);
}

TEST_F(AgentTest, broker_calls_reach_the_coordinator_and_answers_come_back) {
  await_registration();
  assign(
      "ready\npublish address 10.0.0.1:5\npublish address again\nlook-up 1 address 5000\nlook-up 1 absent "
      "50\nwait");
  EXPECT_EQ(await_line("address: OK"), "address: OK ");
  EXPECT_EQ(await_line("address: ALREADY_EXISTS"), "address: ALREADY_EXISTS ");
  EXPECT_EQ(await_line("address: OK"), "address: OK 10.0.0.1:5");
  EXPECT_EQ(await_line("absent"), "absent: DEADLINE_EXCEEDED ");
}

TEST_F(AgentTest, bytes_that_are_no_frame_end_the_executor) {
  await_registration();
  assign("ready\ngarbage\nlinger");
  const pid_t pid = await_ready();
  const auto failed = await(v1::WorkerMessage::kRankFailed);
  ASSERT_TRUE(failed);
  EXPECT_THAT(failed->rank_failed().reason(), HasSubstr("broke its connection"));
  EXPECT_TRUE(await(v1::WorkerMessage::kExecutorStopped));
  EXPECT_FALSE(process_runs(pid));
}

TEST_F(AgentTest, executor_that_hangs_up_and_stays_is_ended) {
  await_registration();
  assign("ready\nhang-up\nlinger");
  const pid_t pid = await_ready();
  EXPECT_TRUE(await(v1::WorkerMessage::kRankFailed));
  EXPECT_TRUE(await(v1::WorkerMessage::kExecutorStopped));
  EXPECT_FALSE(process_runs(pid));
}

TEST_F(AgentTest, restarted_coordinator_is_found_again_and_told_of_the_ranks) {
  await_registration();
  assign("ready\nwait");
  const pid_t pid = await_ready();
  const int port = coordinator->port();
  coordinator->stop();
  coordinator = std::make_unique<FakeCoordinator>(port);
  await_registration();
  EXPECT_EQ(await_ready(), pid);
  EXPECT_TRUE(process_runs(pid));
  abort(key());
  EXPECT_TRUE(await(v1::WorkerMessage::kExecutorStopped));
}

TEST_F(AgentTest, ranks_without_a_coordinator_end_at_the_orphan_bound) {
  AgentLimits limits;
  limits.orphan_bound = 300ms;
  await_registration();
  restart(limits);
  await_registration();
  assign("ready\nlinger");
  const pid_t pid = await_ready();
  ASSERT_GT(pid, 0);
  coordinator->stop();
  EXPECT_TRUE(gone_within(pid, 10));
}

TEST_F(AgentTest, silent_coordinator_is_left_and_tried_again) {
  // The lease of 2 s x 3 bounds the silence that a worker takes for life.
  await_registration();
  coordinator->set_answering(false);
  const auto again = coordinator->await([](const v1::WorkerMessage& m) { return m.has_register_(); }, 9);
  EXPECT_TRUE(again);
  EXPECT_GE(coordinator->sessions(), 2);
}

TEST_F(AgentTest, drain_stops_the_ranks_reports_them_and_ends_gracefully) {
  await_registration();
  assign("ready\nlinger");
  const pid_t pid = await_ready();
  const auto since = std::chrono::steady_clock::now();
  agent->drain("Terminated");
  const auto draining = await(v1::WorkerMessage::kDraining);
  ASSERT_TRUE(draining);
  EXPECT_EQ(draining->draining().reason(), "Terminated");
  EXPECT_TRUE(await(v1::WorkerMessage::kRankFailed));
  EXPECT_TRUE(await(v1::WorkerMessage::kExecutorStopped));
  thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - since, 10s);
  EXPECT_TRUE(ended);
  EXPECT_FALSE(process_runs(pid));
  EXPECT_TRUE(coordinator->ended_gracefully());
}

TEST_F(AgentTest, health_and_reflection_answer_and_say_when_it_drains) {
  // Whoever spreads work must see that this worker takes none on any more, while its ranks still end.
  await_registration();
  const auto channel =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(health->port()), grpc::InsecureChannelCredentials());
  EXPECT_EQ(ask(channel, "/grpc.health.v1.Health/Check", ""), "\x08\x01");
  EXPECT_THAT(ask(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3a\x01*"),
              HasSubstr("grpc.health.v1.Health"));
  agent->drain("Terminated");
  thread.join();
  EXPECT_TRUE(ending.ok()) << ending;
  EXPECT_EQ(ask(channel, "/grpc.health.v1.Health/Check", ""), "\x08\x02");
}

TEST_F(AgentTest, refusal_that_a_second_try_would_not_change_ends_the_daemon_with_the_reason) {
  await_registration();
  stop();
  for (const grpc::StatusCode code :
       {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::PERMISSION_DENIED, grpc::StatusCode::ABORTED}) {
    coordinator->refuse({code, "incarnation 41 expected or greater"});
    start({});
    thread.join();
    EXPECT_EQ(static_cast<int>(ending.code()), static_cast<int>(code));
    EXPECT_EQ(message(ending),
              "the coordinator refuses worker w1 incarnation 40: incarnation 41 expected or greater");
  }
}

TEST_F(AgentTest, drain_without_a_coordinator_ends) {
  await_registration();
  coordinator->stop();
  agent->drain("Terminated");
  thread.join();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace penstock::worker
