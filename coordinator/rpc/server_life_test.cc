// How streams and the server itself end, and what the server says of itself.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/rpc/internal/fake_controller.h"
#include "coordinator/rpc/server.h"
#include "penstock/v1/jobs.grpc.pb.h"
#include "penstock/v1/workers.grpc.pb.h"

namespace penstock::coordinator {
namespace {

using testing::HasSubstr;

void set_deadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
}

class ServerLife : public testing::Test {
 protected:
  void start(Duration register_within = RpcServer::kRegisterWithin) {
    auto started = RpcServer::start("127.0.0.1:0", controller, std::make_shared<prometheus::Registry>(),
                                    register_within);
    ASSERT_TRUE(started.ok()) << started.status();
    server = std::move(started).value();
    channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(server->port()),
                                  grpc::InsecureChannelCredentials());
    workers = v1::Workers::NewStub(channel);
  }

  // The answer to `request`, both as bytes, of a method whose messages are not ours.
  std::string ask(const std::string& method, const std::string& request) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    set_deadline(context);
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
  std::string health(const std::string& service) {
    const std::string request = "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
    return ask("/grpc.health.v1.Health/Check", request);
  }

  static v1::WorkerMessage registration() {
    v1::WorkerMessage message;
    v1::Register& made = *message.mutable_register_();
    made.set_worker("w1");
    made.set_host_id("host");
    made.add_devices()->set_kind("cpu");
    made.set_incarnation(40);
    made.set_pid(7);
    made.set_data_address("127.0.0.1");
    return message;
  }

  FakeController controller;
  std::unique_ptr<RpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Workers::Stub> workers;
};

TEST_F(ServerLife, watchers_may_leave_while_their_answers_come) {
  // An answer and the end of its stream meet on two threads: neither may touch what the other has dropped.
  start();
  JobView view;
  view.name = "a";
  view.state = JobState::Running;
  controller.update(view);
  std::jthread stepping([&](const std::stop_token& enough) {
    while (!enough.stop_requested()) controller.update(view);
  });
  const auto jobs = v1::Jobs::NewStub(channel);
  v1::WatchJobRequest request;
  request.set_name("a");
  std::vector<std::jthread> watchers;
  for (int i = 0; i < 4; ++i) {
    watchers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        grpc::ClientContext context;
        set_deadline(context);
        const auto stream = jobs->Watch(&context, request);
        v1::Job job;
        EXPECT_TRUE(stream->Read(&job));
        context.TryCancel();
        EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
      }
    });
  }
  watchers.clear();
}

TEST_F(ServerLife, readers_of_logs_may_leave_while_empty_answers_come) {
  // An empty answer asks again at once, on the answering thread, while the end of the stream is told on another:
  // nothing is being written then that would keep the two apart.
  start();
  controller.hold_logs = true;
  std::jthread answering([&](const std::stop_token& enough) {
    while (!enough.stop_requested()) controller.answer_logs();
  });
  const auto jobs = v1::Jobs::NewStub(channel);
  v1::LogsRequest request;
  request.set_name("a");
  request.set_follow(true);
  std::vector<std::jthread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        grpc::ClientContext context;
        set_deadline(context);
        const auto stream = jobs->Logs(&context, request);
        int first = -1;
        EXPECT_TRUE(controller.await([&] {
          if (first < 0) first = controller.asked_for_logs;
          return controller.asked_for_logs > first + 10;  // whoever asked: answers come while we leave
        }));
        context.TryCancel();
        v1::LogLine line;
        EXPECT_FALSE(stream->Read(&line));
        EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
      }
    });
  }
  readers.clear();
}

TEST_F(ServerLife, session_that_ends_without_a_word_is_told_from_one_that_drained) {
  // Bytes that are no message end a stream as a half-close does; neither may pass for a graceful end.
  start();
  grpc::ClientContext context;
  set_deadline(context);
  const auto stream = workers->Session(&context);
  ASSERT_TRUE(stream->Write(registration()));
  v1::CoordinatorMessage message;
  ASSERT_TRUE(stream->Read(&message));
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&message));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("without Draining"));
  EXPECT_TRUE(controller.await([&] { return controller.closed.size() == 1; }));
}

TEST_F(ServerLife, stream_that_never_registers_is_ended) {
  start(50ms);
  grpc::ClientContext context;
  set_deadline(context);
  const auto stream = workers->Session(&context);
  v1::CoordinatorMessage message;
  EXPECT_FALSE(stream->Read(&message));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("Register: expected within 0.05 s"));
}

TEST_F(ServerLife, health_and_reflection_answer) {
  start();
  EXPECT_EQ(health(""), "\x08\x01");  // SERVING
  EXPECT_EQ(health("penstock.v1.Jobs"), "\x08\x01");
  const std::string services =
      ask("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3a\x01*");
  for (const char* service : {"penstock.v1.Jobs", "penstock.v1.Workers", "penstock.v1.Broker"})
    EXPECT_THAT(services, HasSubstr(service));
  server->set_serving(false);
  EXPECT_EQ(health(""), "\x08\x02");  // NOT_SERVING
  EXPECT_EQ(health("penstock.v1.Jobs"), "\x08\x02");
}

TEST_F(ServerLife, address_that_is_none_is_refused) {
  // gRPC would take port 70000 for 4464.
  for (const char* address : {"127.0.0.1:70000", "127.0.0.1", "fe80::1:9100", ":7070"}) {
    EXPECT_EQ(RpcServer::start(address, controller, std::make_shared<prometheus::Registry>()).status().code(),
              StatusCode::kInvalidArgument)
        << address;
  }
}

}  // namespace
}  // namespace penstock::coordinator
