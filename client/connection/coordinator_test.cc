#include "client/connection/coordinator.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <future>

#include "penstock/v1/jobs.grpc.pb.h"

namespace penstock::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr StreamPolicy kQuick{.away_max = 10s, .retry_pause = 5ms};

bool has_deadline(const grpc::ServerContext& context) {
  return context.deadline() < std::chrono::system_clock::now() + std::chrono::hours(25);
}

// Answers as each test sets it up, and notes what every request must carry.
class ScriptedJobs final : public v1::Jobs::Service {
 public:
  std::function<grpc::Status(const v1::SubmitRequest&, v1::SubmitResponse*)> on_submit;
  std::function<grpc::Status(grpc::ServerContext*, grpc::ServerWriter<v1::Job>*)> on_watch;
  std::function<grpc::Status(const v1::LogsRequest&, grpc::ServerWriter<v1::LogLine>*)> on_logs;

  grpc::Status Submit(grpc::ServerContext* context, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    EXPECT_TRUE(has_deadline(*context));
    EXPECT_NE(request->caller().principal(), "");
    return on_submit(*request, response);
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                     grpc::ServerWriter<v1::Job>* writer) override {
    EXPECT_TRUE(has_deadline(*context));
    EXPECT_NE(request->caller().principal(), "");
    return on_watch(context, writer);
  }
  grpc::Status Logs(grpc::ServerContext* context, const v1::LogsRequest* request,
                    grpc::ServerWriter<v1::LogLine>* writer) override {
    EXPECT_TRUE(has_deadline(*context));
    return on_logs(*request, writer);
  }
  grpc::Status Get(grpc::ServerContext* context, const v1::GetJobRequest* request, v1::Job*) override {
    EXPECT_TRUE(has_deadline(*context));
    return {grpc::StatusCode::NOT_FOUND, "job " + request->name() + ": not known"};
  }
};

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&jobs_);
    server_ = builder.BuildAndStart();
    StatusOr<std::unique_ptr<Coordinator>> made =
        Coordinator::at("127.0.0.1:" + std::to_string(port), kQuick);
    coordinator_ = std::move(made).value();
  }
  ~CoordinatorTest() override {
    coordinator_.reset();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  static v1::Job job_at(int64_t step, v1::JobState state) {
    v1::Job job;
    job.set_name("a");
    job.set_step(step);
    job.set_state(state);
    return job;
  }

  ScriptedJobs jobs_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(CoordinatorTest, a_submit_whose_answer_got_lost_is_sent_again_under_the_same_id) {
  // Without the same id the job would be queued twice.
  std::vector<std::string> ids;
  jobs_.on_submit = [&](const v1::SubmitRequest& request, v1::SubmitResponse* response) {
    ids.push_back(request.request_id());
    if (ids.size() == 1) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down");
    response->set_name("a");
    return grpc::Status::OK;
  };
  const StatusOr<v1::SubmitResponse> response = coordinator_->submit({.spec_yaml = "name: a"});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->name(), "a");
  ASSERT_EQ(ids.size(), 2);
  EXPECT_EQ(ids[0].size(), 32);
  EXPECT_EQ(ids[0], ids[1]);
}

TEST_F(CoordinatorTest, a_refused_job_is_sent_once_and_keeps_its_reasons) {
  int calls = 0;
  jobs_.on_submit = [&](const v1::SubmitRequest&, v1::SubmitResponse*) {
    ++calls;
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "line 3: x\nline 4: y");
  };
  const Status status = coordinator_->submit({.spec_yaml = "name: a"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(message(status), "line 3: x\nline 4: y");
  EXPECT_EQ(calls, 1);
}

TEST_F(CoordinatorTest, an_unknown_job_is_not_found) {
  const Status status = coordinator_->job("b").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(message(status), "job b: not known; see `penstock get jobs`");
}

TEST_F(CoordinatorTest, a_coordinator_that_cannot_do_it_now_is_heard_and_not_taken_for_absent) {
  // Else a full disk would read as "no coordinator answers".
  jobs_.on_submit = [](const v1::SubmitRequest&, v1::SubmitResponse*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "store: the disk is full: 3 bytes left");
  };
  const Status status = coordinator_->submit({.spec_yaml = "name: a"}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(message(status),
            "the coordinator at " + coordinator_->address() + ": store: the disk is full: 3 bytes left");
}

TEST_F(CoordinatorTest, a_user_without_a_name_is_known_by_number) {
  // In a container USER is often unset; a coordinator that others can reach refuses "anonymous".
  const char* user = std::getenv("USER");
  const std::string before = user == nullptr ? "" : user;
  unsetenv("USER");
  unsetenv("PENSTOCK_PRINCIPAL");
  const std::unique_ptr<Coordinator> nameless = *Coordinator::at(coordinator_->address(), kQuick);
  if (!before.empty()) setenv("USER", before.c_str(), 1);
  std::string principal;
  jobs_.on_submit = [&](const v1::SubmitRequest& request, v1::SubmitResponse*) {
    principal = request.caller().principal();
    return grpc::Status::OK;
  };
  EXPECT_TRUE(nameless->submit({.spec_yaml = "name: a"}).ok());
  EXPECT_EQ(principal, "uid-" + std::to_string(getuid()));
}

TEST_F(CoordinatorTest, a_watch_that_breaks_is_subscribed_again_until_the_job_has_ended) {
  int calls = 0;
  jobs_.on_watch = [&](grpc::ServerContext*, grpc::ServerWriter<v1::Job>* writer) {
    ++calls;
    writer->Write(job_at(calls, calls < 3 ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_SUCCEEDED));
    return calls == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down") : grpc::Status::OK;
  };
  std::vector<int64_t> steps;
  int away = 0;
  const StatusOr<v1::Job> job = coordinator_->watch(
      "a", [&](const v1::Job& seen) { steps.push_back(seen.step()); }, [&](const Status&) { ++away; });
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
  EXPECT_EQ(away, 2);
}

TEST_F(CoordinatorTest, a_watch_whose_deadline_ends_goes_on_without_a_word) {
  int calls = 0;
  jobs_.on_watch = [&](grpc::ServerContext*, grpc::ServerWriter<v1::Job>* writer) {
    ++calls;
    writer->Write(job_at(calls, calls == 1 ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_FAILED));
    return calls == 1 ? grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "24 h") : grpc::Status::OK;
  };
  int away = 0;
  const StatusOr<v1::Job> job = coordinator_->watch(
      "a", [](const v1::Job&) {}, [&](const Status&) { ++away; });
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(away, 0);
}

TEST_F(CoordinatorTest, a_watch_of_an_unknown_job_ends_at_once) {
  jobs_.on_watch = [](grpc::ServerContext*, grpc::ServerWriter<v1::Job>*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "job a: no such job");
  };
  const StatusOr<v1::Job> job = coordinator_->watch(
      "a", [](const v1::Job&) {}, [](const Status&) {});
  EXPECT_EQ(job.status().code(), StatusCode::kNotFound);
}

TEST_F(CoordinatorTest, stop_ends_a_watch_in_progress_from_another_thread) {
  std::promise<void> watching;
  jobs_.on_watch = [&](grpc::ServerContext* context, grpc::ServerWriter<v1::Job>* writer) {
    writer->Write(job_at(1, v1::JOB_STATE_RUNNING));
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  };
  auto result = std::async(std::launch::async, [&] {
    return coordinator_->watch(
        "a", [&](const v1::Job&) { watching.set_value(); }, [](const Status&) {});
  });
  watching.get_future().wait();
  coordinator_->stop();
  EXPECT_EQ(result.get().status().code(), StatusCode::kCancelled);
}

TEST_F(CoordinatorTest, log_lines_are_not_repeated_after_a_gap) {
  const auto line = [](int64_t unix_ms, const std::string& text) {
    v1::LogLine made;
    made.set_unix_ms(unix_ms);
    made.set_text(text);
    return made;
  };
  int calls = 0;
  jobs_.on_logs = [&](const v1::LogsRequest& request, grpc::ServerWriter<v1::LogLine>* writer) {
    EXPECT_TRUE(request.follow());
    EXPECT_EQ(request.rank(), 3);
    ++calls;
    writer->Write(line(1, "one"));
    writer->Write(line(2, "two"));
    if (calls == 1) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down");
    writer->Write(line(2, "two again"));
    writer->Write(line(3, "three"));
    return grpc::Status::OK;
  };
  std::vector<std::string> texts;
  const Status status = coordinator_->logs(
      {.job = "a", .rank = 3, .follow = true}, [&](const v1::LogLine& seen) { texts.push_back(seen.text()); },
      [](const Status&) {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(texts, ElementsAre("one", "two", "two again", "three"));
}

TEST(CoordinatorAt, nobody_there_is_unavailable_with_what_to_do) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = Coordinator::at("127.0.0.1:1", kQuick);
  ASSERT_TRUE(coordinator.ok());
  const Status status = (*coordinator)->jobs().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(message(status), HasSubstr("no coordinator answers at 127.0.0.1:1"));
  EXPECT_THAT(message(status), HasSubstr("penstock up"));
  // A stream that never began is not retried.
  EXPECT_EQ((*coordinator)
                ->watch(
                    "a", [](const v1::Job&) {}, [](const Status&) {})
                .status()
                .code(),
            StatusCode::kUnavailable);
}

TEST(CoordinatorAt, an_address_without_host_or_port_is_refused) {
  for (const char* address : {"", "nonsense", ":7070", "host:", "host:port", "host:70x"}) {
    EXPECT_EQ(Coordinator::at(address).status().code(), StatusCode::kInvalidArgument) << address;
  }
}

TEST(CoordinatorAddress, the_command_line_wins_over_the_environment) {
  setenv("PENSTOCK_COORDINATOR", "from-environment:1", 1);
  EXPECT_EQ(coordinator_address("told:2"), "told:2");
  EXPECT_EQ(coordinator_address(""), "from-environment:1");
  unsetenv("PENSTOCK_COORDINATOR");
  EXPECT_EQ(coordinator_address(""), "127.0.0.1:7070");
}

}  // namespace
}  // namespace penstock::client
