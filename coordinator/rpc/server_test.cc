#include "coordinator/rpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "coordinator/rpc/admission.h"
#include "coordinator/rpc/internal/fake_controller.h"
#include "penstock/v1/broker.grpc.pb.h"
#include "penstock/v1/jobs.grpc.pb.h"
#include "penstock/v1/workers.grpc.pb.h"
#include "proto/codec/codec.h"

namespace penstock::coordinator {
namespace {

using testing::HasSubstr;

// A client's context with a deadline, as every call needs one.
struct Context : grpc::ClientContext {
  explicit Context(double seconds = 30) {
    set_deadline(std::chrono::system_clock::now() +
                 std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
  }
};

class RpcServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = RpcServer::start("127.0.0.1:0", controller, registry);
    ASSERT_TRUE(started.ok()) << started.status();
    server = std::move(started).value();
    channel = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
    jobs = v1::Jobs::NewStub(channel);
    workers = v1::Workers::NewStub(channel);
    broker = v1::Broker::NewStub(channel);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(server->port()); }

  void put_job(const std::string& name, JobState state, int64_t step = 0) {
    JobView view;
    view.name = name;
    view.state = state;
    view.step = step;
    view.losses = {5.5, 5.25};
    controller.update(view);
  }

  static v1::WorkerMessage registration(const std::string& worker = "w1") {
    v1::WorkerMessage message;
    v1::Register& made = *message.mutable_register_();
    made.set_worker(worker);
    made.set_host_id("host");
    made.add_devices()->set_kind("cpu");
    made.mutable_devices(0)->set_fingerprint("x");
    made.set_incarnation(40);
    made.set_pid(7);
    made.set_metrics_address("127.0.0.1:9");
    made.set_data_address("127.0.0.1");
    return message;
  }
  static v1::WorkerMessage heartbeat(int64_t sequence) {
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_sequence(sequence);
    return message;
  }

  FakeController controller;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<RpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Jobs::Stub> jobs;
  std::unique_ptr<v1::Workers::Stub> workers;
  std::unique_ptr<v1::Broker::Stub> broker;
};

TEST_F(RpcServerTest, submit_carries_caller_and_answers_the_outcome) {
  Context context;
  v1::SubmitRequest request;
  request.mutable_caller()->set_principal("ada");
  request.set_spec_yaml("name: job");
  request.set_request_id("r1");
  v1::SubmitResponse response;
  const grpc::Status status = jobs->Submit(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.name(), "job");
  EXPECT_EQ(response.notes(0), "restart.max counts as 0");
  EXPECT_EQ(response.stage_items_size(), 2);
  ASSERT_EQ(controller.submissions.size(), 1u);
  EXPECT_EQ(controller.submissions[0].principal, "ada");
  EXPECT_EQ(controller.submissions[0].request_id, "r1");
}

TEST_F(RpcServerTest, absent_caller_is_anonymous_on_this_machine) {
  Context context;
  v1::SubmitRequest request;
  request.set_spec_yaml("name: job");
  v1::SubmitResponse response;
  ASSERT_TRUE(jobs->Submit(&context, request, &response).ok());
  EXPECT_EQ(controller.submissions[0].principal, "anonymous");
}

TEST_F(RpcServerTest, call_without_deadline_is_refused) {
  // A client that waits for ever holds memory for ever.
  grpc::ClientContext context;
  v1::Job response;
  const grpc::Status status = jobs->Get(&context, v1::GetJobRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "a deadline is required");
  grpc::ClientContext watching;
  const auto stream = jobs->Watch(&watching, v1::WatchJobRequest());
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext session_context;
  const auto session = workers->Session(&session_context);
  session->Write(registration());
  v1::CoordinatorMessage message;
  EXPECT_FALSE(session->Read(&message));
  EXPECT_EQ(session->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcServerTest, refusal_of_the_controller_is_the_status_of_the_call) {
  Context context;
  v1::SubmitResponse response;
  const grpc::Status status = jobs->Submit(&context, v1::SubmitRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("line 1: name"));
}

TEST_F(RpcServerTest, job_file_over_a_mebibyte_is_refused) {
  Context context;
  v1::SubmitRequest request;
  request.set_spec_yaml(std::string((1 << 20) + 1, '#'));
  v1::SubmitResponse response;
  EXPECT_EQ(jobs->Submit(&context, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(controller.submissions.empty());
}

TEST_F(RpcServerTest, drain_and_uncordon_answer_with_the_workers_devices) {
  Context drain_context, uncordon_context, absent_context;
  v1::DrainWorkerRequest drain;
  drain.set_name("w1");
  drain.mutable_caller()->set_principal("ann");
  v1::DrainWorkerResponse drained;
  ASSERT_TRUE(workers->Drain(&drain_context, drain, &drained).ok());
  ASSERT_EQ(drained.devices_size(), 1);
  EXPECT_EQ(drained.devices(0).state(), "drained");
  EXPECT_EQ(drained.devices(0).drained_by(), "ann");
  v1::UncordonWorkerRequest uncordon;
  uncordon.set_name("w1");
  v1::UncordonWorkerResponse uncordoned;
  ASSERT_TRUE(workers->Uncordon(&uncordon_context, uncordon, &uncordoned).ok());
  EXPECT_EQ(uncordoned.devices(0).state(), "free");
  drain.set_name("absent");
  EXPECT_EQ(workers->Drain(&absent_context, drain, &drained).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcServerTest, get_list_and_cancel_answer_with_the_job) {
  put_job("a", JobState::Running, 2);
  Context get_context, list_context, cancel_context, absent_context;
  v1::GetJobRequest get;
  get.set_name("a");
  get.set_include_losses(true);
  v1::Job job;
  ASSERT_TRUE(jobs->Get(&get_context, get, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.losses_size(), 2);
  EXPECT_FALSE(job.has_loss());
  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs->List(&list_context, v1::ListJobsRequest(), &list).ok());
  EXPECT_EQ(list.jobs_size(), 1);
  v1::CancelJobRequest cancel;
  cancel.set_name("a");
  v1::CancelJobResponse state;
  ASSERT_TRUE(jobs->Cancel(&cancel_context, cancel, &state).ok());
  EXPECT_EQ(state.state(), v1::JOB_STATE_CANCELLED);
  get.set_name("b");
  EXPECT_EQ(jobs->Get(&absent_context, get, &job).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcServerTest, trace_answers_with_the_messages_of_the_ranks) {
  const StepTrace trace{
      .attempt = {"a", 1, 7}, .rank = RankIndex(0), .step = 2, .clock = "boot", .works = {}, .waits = {}};
  controller.traces["a"] = {
      "name: a\n", 2, {2, 100}, {std::make_shared<const std::string>(codec::encode(trace))}};
  controller.traces["broken"] = {"", 2, {2}, {std::make_shared<const std::string>("\xff\xff")}};
  Context newest_context, other_context, absent_context, broken_context;
  v1::TraceRequest request;
  request.set_name("a");
  v1::TraceResponse response;
  ASSERT_TRUE(jobs->Trace(&newest_context, request, &response).ok());
  EXPECT_EQ(response.spec_yaml(), "name: a\n");
  EXPECT_EQ(response.step(), 2);
  EXPECT_EQ(response.steps_size(), 2);
  ASSERT_EQ(response.ranks_size(), 1);
  EXPECT_EQ(response.ranks(0).clock(), "boot");
  request.set_step(100);
  ASSERT_TRUE(jobs->Trace(&other_context, request, &response).ok());
  EXPECT_EQ(response.step(), 100);
  request.set_name("b");
  EXPECT_EQ(jobs->Trace(&absent_context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  request.set_name("broken");
  EXPECT_EQ(jobs->Trace(&broken_context, request, &response).error_code(), grpc::StatusCode::DATA_LOSS);
}

TEST_F(RpcServerTest, measurements_answer_with_medians_and_samples) {
  MeasurementsView view{.spec_yaml = "name: a\n", .step = 7, .steps = 9};
  view.attempts.push_back(
      {.attempt = 2, .schedule = "1f1b", .stages = {"embedding 0", "1 head"}, .steps = 5});
  view.attempts[0].series = {{.rank = RankIndex(1),
                              .stage = StageIndex(1),
                              .kind = MeasuredKind::Backward,
                              .count = 12,
                              .seconds = {0.5f, 0.25f, 8.f},
                              .cpu_seconds = {0.125f}},
                             {.rank = RankIndex(0), .kind = MeasuredKind::Step, .count = 1, .seconds = {1.f}},
                             {.rank = RankIndex(1),
                              .stage = StageIndex(1),
                              .kind = MeasuredKind::LayerBackward,
                              .layer = plan::LayerType::Head,
                              .count = 1,
                              .seconds = {1.f}}};
  controller.measurements["a"] = view;
  Context found_context, absent_context;
  v1::MeasurementsRequest request;
  request.set_name("a");
  v1::MeasurementsResponse response;
  ASSERT_TRUE(jobs->Measurements(&found_context, request, &response).ok());
  EXPECT_EQ(response.steps(), 9);
  ASSERT_EQ(response.attempts_size(), 1);
  const v1::AttemptMeasurements& attempt = response.attempts(0);
  ASSERT_EQ(attempt.stages_size(), 2);
  EXPECT_THAT(attempt.stages(0).items(), ::testing::ElementsAre("embedding", "0"));
  ASSERT_EQ(attempt.series_size(), 3);
  EXPECT_EQ(attempt.series(0).kind(), v1::MEASURED_KIND_BACKWARD);
  EXPECT_EQ(attempt.series(0).median_seconds(), 0.5);
  EXPECT_EQ(attempt.series(0).p95_seconds(), 8);
  EXPECT_EQ(attempt.series(0).cpu_median_seconds(), 0.125);
  EXPECT_EQ(attempt.series(0).samples_size(), 3);
  EXPECT_EQ(attempt.series(1).stage(), -1);
  EXPECT_FALSE(attempt.series(1).has_cpu_median_seconds());
  EXPECT_EQ(attempt.series(1).layer(), v1::LAYER_TYPE_UNSPECIFIED);
  EXPECT_EQ(attempt.series(2).kind(), v1::MEASURED_KIND_LAYER_BACKWARD);
  EXPECT_EQ(attempt.series(2).layer(), v1::LAYER_TYPE_HEAD);
  request.set_name("b");
  EXPECT_EQ(jobs->Measurements(&absent_context, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcServerTest, watch_sends_every_change_to_a_reader_that_keeps_up_and_ends_with_the_job) {
  put_job("a", JobState::Running, 0);
  Context context;
  v1::WatchJobRequest request;
  request.set_name("a");
  const auto stream = jobs->Watch(&context, request);
  v1::Job job;
  ASSERT_TRUE(stream->Read(&job));
  EXPECT_EQ(job.step(), 0);
  for (int64_t step = 1; step <= 5; ++step) {
    put_job("a", JobState::Running, step);
    ASSERT_TRUE(stream->Read(&job));
    EXPECT_EQ(job.step(), step);
  }
  put_job("a", JobState::Succeeded, 5);
  ASSERT_TRUE(stream->Read(&job));
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(stream->Read(&job));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(RpcServerTest, slow_reader_of_watch_gets_the_newest_state_and_nothing_piles_up) {
  // What a reader does not take must not be kept for it: it is told how things are when it asks.
  JobView big;
  big.name = "a";
  big.state = JobState::Running;
  big.reason = std::string(256 << 10, 'x');
  controller.update(big);
  Context context;
  v1::WatchJobRequest request;
  request.set_name("a");
  const auto stream = jobs->Watch(&context, request);
  v1::Job job;
  ASSERT_TRUE(stream->Read(&job));
  constexpr int64_t kSteps = 2000;
  for (int64_t step = 1; step <= kSteps; ++step) {
    big.step = step;
    controller.update(big);
  }
  int answers = 0;
  {
    const std::lock_guard lock(controller.mutex);
    answers = controller.answers_of_watch;
  }
  EXPECT_LT(answers, kSteps / 2);
  int reads = 0;
  while (job.step() < kSteps) {
    ASSERT_TRUE(stream->Read(&job));
    ++reads;
  }
  EXPECT_LT(reads, kSteps / 2);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(RpcServerTest, watch_sends_the_job_file_once) {
  JobView view;
  view.name = "a";
  view.state = JobState::Running;
  view.spec_yaml = "name: a";
  controller.update(view);
  Context context;
  v1::WatchJobRequest request;
  request.set_name("a");
  const auto stream = jobs->Watch(&context, request);
  v1::Job job;
  ASSERT_TRUE(stream->Read(&job));
  EXPECT_EQ(job.spec_yaml(), "name: a");
  view.state = JobState::Succeeded;
  controller.update(view);
  ASSERT_TRUE(stream->Read(&job));
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.spec_yaml(), "");
}

TEST_F(RpcServerTest, watch_of_an_absent_job_is_not_found) {
  Context context;
  v1::WatchJobRequest request;
  request.set_name("nobody");
  const auto stream = jobs->Watch(&context, request);
  v1::Job job;
  EXPECT_FALSE(stream->Read(&job));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcServerTest, watcher_that_leaves_ends_its_wait) {
  put_job("a", JobState::Running);
  Context context;
  v1::WatchJobRequest request;
  request.set_name("a");
  auto stream = jobs->Watch(&context, request);
  v1::Job job;
  ASSERT_TRUE(stream->Read(&job));
  ASSERT_TRUE(controller.await([&] { return controller.waiting() == 1; }));
  context.TryCancel();
  stream->Finish();
  EXPECT_TRUE(controller.await([&] { return controller.waiting() == 0 && controller.abandoned == 1; }));
}

TEST_F(RpcServerTest, logs_come_in_order_and_end_with_the_job) {
  for (int i = 0; i < 10; ++i)
    controller.log.push_back(LogLineView{i, RankIndex(i % 2), "w1", "line " + std::to_string(i)});
  Context context;
  v1::LogsRequest request;
  request.set_name("a");
  request.set_follow(true);
  const auto stream = jobs->Logs(&context, request);
  v1::LogLine line;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(stream->Read(&line));
    EXPECT_EQ(line.text(), "line " + std::to_string(i));
  }
  EXPECT_FALSE(stream->Read(&line));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(RpcServerTest, session_registers_delivers_and_is_told) {
  Context context;
  const auto stream = workers->Session(&context);
  ASSERT_TRUE(stream->Write(registration()));
  v1::CoordinatorMessage message;
  ASSERT_TRUE(stream->Read(&message));
  EXPECT_EQ(message.registered().lease_ms(), 2000);
  ASSERT_TRUE(stream->Write(heartbeat(5)));
  ASSERT_TRUE(controller.await([&] { return controller.delivered.size() == 1; }));
  EXPECT_EQ(std::get<Heartbeat>(controller.delivered[0]).sequence, 5);
  controller.sink->send(Abort{AttemptKey{"job", 2, 40}, RankIndex(3), "cancelled"});
  ASSERT_TRUE(stream->Read(&message));
  EXPECT_EQ(message.abort().attempt().attempt(), 2);
  EXPECT_EQ(message.abort().rank(), 3);
  v1::WorkerMessage draining;
  draining.mutable_draining()->set_reason("Terminated");
  ASSERT_TRUE(stream->Write(draining));
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(controller.await([&] { return controller.closed.size() == 1; }));
}

TEST_F(RpcServerTest, one_message_of_a_session_waits_at_a_time) {
  // A worker that talks faster than the controller listens is slowed down, not queued.
  controller.hold = true;
  Context context;
  const auto stream = workers->Session(&context);
  stream->Write(registration());
  v1::CoordinatorMessage message;
  ASSERT_TRUE(stream->Read(&message));
  for (int i = 0; i < 3; ++i) stream->Write(heartbeat(i));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(controller.await([&] { return controller.held.size() == i + 1; }));
    std::function<void()> taken;
    {
      const std::lock_guard lock(controller.mutex);
      EXPECT_EQ(controller.delivered.size(), i + 1);
      taken = controller.held[i];
    }
    taken();
  }
  context.TryCancel();
  stream->Finish();
}

TEST_F(RpcServerTest, malformed_message_ends_the_session_with_the_field) {
  Context context;
  const auto stream = workers->Session(&context);
  stream->Write(registration());
  v1::CoordinatorMessage message;
  ASSERT_TRUE(stream->Read(&message));
  v1::WorkerMessage bad;
  bad.mutable_step_report()->mutable_attempt()->set_job("job");
  bad.mutable_step_report()->mutable_attempt()->set_attempt(1);
  bad.mutable_step_report()->set_rank(-7);
  stream->Write(bad);
  EXPECT_FALSE(stream->Read(&message));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("-7"));
  ASSERT_TRUE(controller.await([&] { return controller.closed.size() == 1; }));
  EXPECT_THAT(controller.closed[0], HasSubstr("malformed"));
}

TEST_F(RpcServerTest, bytes_that_are_no_message_get_a_status) {
  grpc::GenericStub stub(channel);
  const std::string garbage = "\xff\xff\xff\xff\xff not protobuf";
  for (const char* method :
       {"/penstock.v1.Jobs/Submit", "/penstock.v1.Broker/LookUp", "/penstock.v1.Jobs/Nothing"}) {
    Context context;
    const grpc::Slice slice(garbage);
    grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> answered;
    stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                   [&](const grpc::Status& status) { answered.set_value(status); });
    EXPECT_FALSE(answered.get_future().get().ok()) << method;
  }
  Context context;
  v1::ListWorkersResponse response;
  EXPECT_TRUE(workers->List(&context, v1::ListWorkersRequest(), &response).ok());
}

TEST_F(RpcServerTest, session_must_begin_with_one_register) {
  Context first_context, second_context;
  v1::CoordinatorMessage message;
  auto stream = workers->Session(&first_context);
  stream->Write(heartbeat(1));
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(controller.registrations.empty());
  stream = workers->Session(&second_context);
  stream->Write(registration());
  ASSERT_TRUE(stream->Read(&message));
  stream->Write(registration());
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcServerTest, worker_that_vanishes_is_known_within_a_second) {
  Context context;
  const auto stream = workers->Session(&context);
  stream->Write(registration());
  v1::CoordinatorMessage message;
  ASSERT_TRUE(stream->Read(&message));
  const auto since = std::chrono::steady_clock::now();
  context.TryCancel();
  ASSERT_TRUE(controller.await([&] { return controller.closed.size() == 1; }));
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(1));
  stream->Finish();
}

TEST_F(RpcServerTest, closed_session_ends_with_its_status_after_what_was_queued) {
  Context context;
  const auto stream = workers->Session(&context);
  stream->Write(registration());
  ASSERT_TRUE(controller.await([&] { return controller.sink != nullptr; }));
  std::shared_ptr<WorkerSink> sink;
  {
    const std::lock_guard lock(controller.mutex);
    sink = controller.sink;
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(sink->send(HeartbeatAck{i}));
  sink->close(aborted("incarnation 41 expected, 40 received"));
  EXPECT_FALSE(sink->send(HeartbeatAck{99}));
  v1::CoordinatorMessage message;
  int read = 0;
  while (stream->Read(&message)) ++read;
  EXPECT_EQ(read, 21);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(RpcServerTest, worker_that_does_not_read_is_refused_at_the_bound) {
  Context context;
  const auto stream = workers->Session(&context);
  stream->Write(registration());
  ASSERT_TRUE(controller.await([&] { return controller.sink != nullptr; }));
  const std::string long_reason(8000, 'r');
  int sent = 0;
  while (sent < 100000 && controller.sink->send(Abort{AttemptKey{"job", 1, 40}, RankIndex(0), long_reason}))
    ++sent;
  EXPECT_LT(sent, 100000);
  context.TryCancel();
  stream->Finish();
}

TEST_F(RpcServerTest, broker_publishes_once_and_answers_look_ups) {
  Context first, again, found_context, bad_context;
  v1::PublishRequest publish;
  publish.mutable_key()->mutable_attempt()->set_job("job");
  publish.mutable_key()->mutable_attempt()->set_attempt(1);
  publish.mutable_key()->set_communicator("pipeline");
  publish.mutable_key()->set_item("address");
  publish.set_value("10.0.0.1:5");
  v1::PublishResponse published;
  ASSERT_TRUE(broker->Publish(&first, publish, &published).ok());
  EXPECT_EQ(broker->Publish(&again, publish, &published).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  v1::LookUpRequest look_up;
  *look_up.mutable_key() = publish.key();
  v1::LookUpResponse found;
  ASSERT_TRUE(broker->LookUp(&found_context, look_up, &found).ok());
  EXPECT_EQ(found.value(), "10.0.0.1:5");
  look_up.mutable_key()->set_rank(-1);
  EXPECT_EQ(broker->LookUp(&bad_context, look_up, &found).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcServerTest, look_up_ends_with_the_callers_deadline) {
  Context context(0.2);
  v1::LookUpRequest request;
  request.mutable_key()->mutable_attempt()->set_job("job");
  request.mutable_key()->mutable_attempt()->set_attempt(1);
  request.mutable_key()->set_communicator("pipeline");
  request.mutable_key()->set_item("absent");
  v1::LookUpResponse response;
  EXPECT_EQ(broker->LookUp(&context, request, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(controller.await([&] { return controller.waiting() == 0; }));
}

TEST_F(RpcServerTest, stop_ends_streams_and_waits_within_two_seconds) {
  // One stream that does not finish would keep the process for ever.
  put_job("a", JobState::Running);
  Context watch_context, session_context, look_up_context;
  v1::WatchJobRequest watch;
  watch.set_name("a");
  const auto watching = jobs->Watch(&watch_context, watch);
  v1::Job job;
  ASSERT_TRUE(watching->Read(&job));
  const auto session = workers->Session(&session_context);
  session->Write(registration());
  v1::CoordinatorMessage message;
  ASSERT_TRUE(session->Read(&message));
  grpc::Status looked_up;
  std::thread looking([&] {
    v1::LookUpRequest request;
    request.mutable_key()->mutable_attempt()->set_job("job");
    request.mutable_key()->mutable_attempt()->set_attempt(1);
    request.mutable_key()->set_communicator("pipeline");
    request.mutable_key()->set_item("absent");
    v1::LookUpResponse response;
    looked_up = broker->LookUp(&look_up_context, request, &response);
  });
  ASSERT_TRUE(controller.await([&] { return controller.waiting() == 2; }));
  const auto since = std::chrono::steady_clock::now();
  server->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(2));
  looking.join();
  EXPECT_EQ(looked_up.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(watching->Read(&job));
  const grpc::Status watched = watching->Finish();
  EXPECT_EQ(watched.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(watched.error_message(), HasSubstr("stopping"));
  EXPECT_FALSE(session->Read(&message));
  EXPECT_EQ(session->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcServerTest, second_server_on_the_port_is_unavailable) {
  // With port sharing two coordinators would each get half of the calls.
  EXPECT_EQ(RpcServer::start(address(), controller, std::make_shared<prometheus::Registry>()).status().code(),
            StatusCode::kUnavailable);
}

TEST_F(RpcServerTest, calls_and_streams_are_counted) {
  Context context;
  v1::ListWorkersResponse response;
  ASSERT_TRUE(workers->List(&context, v1::ListWorkersRequest(), &response).ok());
  EXPECT_EQ(response.workers(0).name(), "w1");
  EXPECT_EQ(response.workers(0).rank(), -1);
  const std::string page = prometheus::TextSerializer().Serialize(registry->Collect());
  EXPECT_THAT(page, HasSubstr("penstock_rpc_requests_total{code=\"OK\",method=\"Workers.List\"} 1"));
}

TEST(Admission, loopback_peers_are_told_from_others) {
  for (const char* peer :
       {"ipv4:127.0.0.1:5000", "ipv4:127.8.8.8:1", "ipv6:[::1]:5000", "ipv6:%5B::1%5D:5000", "unix:/run/x"}) {
    EXPECT_TRUE(is_loopback(peer)) << peer;
  }
  for (const char* peer :
       {"ipv4:10.0.0.1:5000", "ipv4:1.127.0.0:5", "ipv6:[fe80::1]:5000", "ipv6:[::10]:1", ""}) {
    EXPECT_FALSE(is_loopback(peer)) << peer;
  }
}

TEST(Admission, callers_from_other_machines_must_name_themselves) {
  // A fleet of several machines works, and nobody from elsewhere is let in unnamed.
  const auto deadline = std::chrono::system_clock::now() + std::chrono::hours(24);
  v1::Caller caller;
  EXPECT_EQ(admit(deadline, "ipv4:10.0.0.7:5000", caller).status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(admit(deadline, "ipv4:127.0.0.1:5000", caller).value(), "anonymous");
  caller.set_principal("worker:node-7");
  EXPECT_EQ(admit(deadline, "ipv4:10.0.0.7:5000", caller).value(), "worker:node-7");
}

}  // namespace
}  // namespace penstock::coordinator
