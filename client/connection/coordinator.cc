#include "client/connection/coordinator.h"

#include <grpcpp/grpcpp.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>

#include "base/host_port.h"
#include "base/text.h"
#include "client/connection/list_of_names.h"
#include "client/present/job_words.h"
#include "penstock/v1/jobs.grpc.pb.h"
#include "penstock/v1/workers.grpc.pb.h"

namespace penstock::client {
namespace {

constexpr Duration kCallDeadline = 10s;
constexpr Duration kStreamDeadline = 24h;
constexpr int kMessageBytesMax = 64 << 20;  // a job with the losses of millions of steps
constexpr int kSubmitTries = 3;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A name that the service may show, not an identity that it may trust. One that the protocol would refuse is
// left out.
std::string principal_of_this_user() {
  for (const char* name : {"PENSTOCK_PRINCIPAL", "USER"}) {
    const std::string value = environment(name);
    const bool usable = std::all_of(value.begin(), value.end(), [](unsigned char c) {
      return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '@');
    });
    if (usable && !value.empty() && value.size() <= 64) return value;
  }
  // As in a container without a name for its user: a service that others can reach takes no anonymous calls.
  return fmt::format("uid-{}", getuid());
}

std::string random_request_id() {
  std::array<uint8_t, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return "";
  return hex(bytes);
}

std::shared_ptr<grpc::Channel> open_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a coordinator is never behind the site's web proxy
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void set_deadline(grpc::ClientContext& context, Duration from_now) {
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(from_now));
}

StatusCode code_of(const grpc::Status& status) {
  return static_cast<StatusCode>(status.error_code());
}

// gRPC marks what came over the wire, and only that, in the words for debugging.
CallEnd end_of(const grpc::ClientContext& context, const grpc::Status& status) {
  const bool answered = context.debug_error_string().find("Error received from peer") != std::string::npos;
  return {code_of(status), status.error_message(), answered};
}

// Log lines of a stream that is subscribed again begin at the oldest one kept. Remembers what was seen: the
// newest time, and the lines of that millisecond.
class SeenLines {
 public:
  bool is_new(const v1::LogLine& line) {
    if (line.unix_ms() < newest_ms_ && replaying_) return false;
    if (line.unix_ms() > newest_ms_) {
      newest_ms_ = line.unix_ms();
      at_newest_.clear();
    }
    const bool inserted = at_newest_.emplace(line.rank(), line.text()).second;
    return inserted || !replaying_;
  }
  void subscribed_again() { replaying_ = true; }

 private:
  int64_t newest_ms_ = 0;
  bool replaying_ = false;
  std::set<std::tuple<int32_t, std::string>> at_newest_;
};

}  // namespace

bool may_come_back(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kDeadlineExceeded;
}

std::string coordinator_address(const std::string& from_command_line) {
  if (!from_command_line.empty()) return from_command_line;
  const std::string set = environment("PENSTOCK_COORDINATOR");
  return set.empty() ? kDefaultCoordinator : set;
}

struct Coordinator::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : jobs(v1::Jobs::NewStub(channel)), workers(v1::Workers::NewStub(channel)) {}

  std::unique_ptr<v1::Jobs::Stub> jobs;
  std::unique_ptr<v1::Workers::Stub> workers;
};

// The context of the one stream in progress, reachable by stop() while it lives.
class Coordinator::RunningStream {
 public:
  explicit RunningStream(Coordinator& owner) : owner_(owner) {
    set_deadline(context, kStreamDeadline);
    const std::lock_guard lock(owner_.mutex_);
    owner_.running_ = this;
    if (owner_.stopped_) context.TryCancel();
  }
  ~RunningStream() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.running_ = nullptr;
  }

  grpc::ClientContext context;

 private:
  Coordinator& owner_;
};

StatusOr<std::unique_ptr<Coordinator>> Coordinator::at(const std::string& address,
                                                       const StreamPolicy& policy) {
  if (const Status status = parse_host_port(address).status(); !status.ok()) {
    return with_context(status, "coordinator");
  }
  // gRPC logs every failed connection; the error that this client prints says more.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  return std::unique_ptr<Coordinator>(new Coordinator(address, policy));
}

Coordinator::Coordinator(std::string address, const StreamPolicy& policy)
    : address_(std::move(address)),
      policy_(policy),
      principal_(principal_of_this_user()),
      stubs_(std::make_unique<Stubs>(open_channel(address_))) {}

Coordinator::~Coordinator() = default;

Status Coordinator::explained(const CallEnd& end) const {
  // gRPC tells the whole way to an address; its last words are the reason.
  const size_t last = end.text.rfind(": ");
  const std::string reason = last == std::string::npos ? end.text : end.text.substr(last + 2);
  switch (end.code) {
    case StatusCode::kOk:
      return ok_status();
    case StatusCode::kUnavailable:
      if (end.by_coordinator) return unavailable("the coordinator at {}: {}", address_, end.text);
      return unavailable(
          "no coordinator answers at {} ({}); start one with `penstock up`, or name it with --coordinator "
          "HOST:PORT or PENSTOCK_COORDINATOR",
          address_, reason);
    case StatusCode::kNotFound:
      return not_found("{}", with_list_of_names(end.text));
    case StatusCode::kDeadlineExceeded:
      return deadline_exceeded("the coordinator at {} did not answer in time ({}); see its log", address_,
                               reason);
    case StatusCode::kUnimplemented:
      return unimplemented("the coordinator at {} does not know this call ({}); is it an older one?",
                           address_, reason);
    default:
      return Status(end.code, end.text);
  }
}

namespace {

// One unary call with a caller and a deadline.
template <typename Request, typename Response, typename Stub>
CallEnd call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
             const Request& request, Response& response) {
  grpc::ClientContext context;
  set_deadline(context, kCallDeadline);
  return end_of(context, (stub.*method)(&context, request, &response));
}

}  // namespace

StatusOr<v1::SubmitResponse> Coordinator::submit(const Submission& submission) {
  v1::SubmitRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_spec_yaml(submission.spec_yaml);
  request.set_request_id(random_request_id());
  request.set_dry_run(submission.dry_run);
  v1::SubmitResponse response;
  CallEnd end;
  // Without an id a second try could queue the job twice.
  const int tries = request.request_id().empty() ? 1 : kSubmitTries;
  for (int i = 0; i < tries; ++i) {
    if (i > 0 && !pause_unless_stopped()) break;
    end = call(*stubs_->jobs, &v1::Jobs::Stub::Submit, request, response);
    if (!may_come_back(end.code)) break;
  }
  if (!end.ok()) return explained(end);
  return response;
}

StatusOr<v1::Job> Coordinator::job(const std::string& name, Losses losses) {
  v1::GetJobRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(name);
  request.set_include_losses(losses == Losses::Include);
  v1::Job response;
  const CallEnd end = call(*stubs_->jobs, &v1::Jobs::Stub::Get, request, response);
  if (!end.ok()) return explained(end);
  return response;
}

StatusOr<v1::TraceResponse> Coordinator::trace(const std::string& name, std::optional<int64_t> step) {
  v1::TraceRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(name);
  if (step) request.set_step(*step);
  v1::TraceResponse response;
  const CallEnd end = call(*stubs_->jobs, &v1::Jobs::Stub::Trace, request, response);
  if (!end.ok()) return explained(end);
  return response;
}

StatusOr<v1::MeasurementsResponse> Coordinator::measurements(const std::string& name) {
  v1::MeasurementsRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(name);
  v1::MeasurementsResponse response;
  const CallEnd end = call(*stubs_->jobs, &v1::Jobs::Stub::Measurements, request, response);
  if (!end.ok()) return explained(end);
  return response;
}

StatusOr<std::vector<v1::Job>> Coordinator::jobs() {
  v1::ListJobsRequest request;
  request.mutable_caller()->set_principal(principal_);
  v1::ListJobsResponse response;
  const CallEnd end = call(*stubs_->jobs, &v1::Jobs::Stub::List, request, response);
  if (!end.ok()) return explained(end);
  return std::vector<v1::Job>(response.jobs().begin(), response.jobs().end());
}

StatusOr<std::vector<v1::Worker>> Coordinator::workers() {
  v1::ListWorkersRequest request;
  request.mutable_caller()->set_principal(principal_);
  v1::ListWorkersResponse response;
  const CallEnd end = call(*stubs_->workers, &v1::Workers::Stub::List, request, response);
  if (!end.ok()) return explained(end);
  return std::vector<v1::Worker>(response.workers().begin(), response.workers().end());
}

StatusOr<std::vector<v1::Worker>> Coordinator::drain(const std::string& worker) {
  v1::DrainWorkerRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(worker);
  v1::DrainWorkerResponse response;
  const CallEnd end = call(*stubs_->workers, &v1::Workers::Stub::Drain, request, response);
  if (!end.ok()) return explained(end);
  return std::vector<v1::Worker>(response.devices().begin(), response.devices().end());
}

StatusOr<std::vector<v1::Worker>> Coordinator::uncordon(const std::string& worker) {
  v1::UncordonWorkerRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(worker);
  v1::UncordonWorkerResponse response;
  const CallEnd end = call(*stubs_->workers, &v1::Workers::Stub::Uncordon, request, response);
  if (!end.ok()) return explained(end);
  return std::vector<v1::Worker>(response.devices().begin(), response.devices().end());
}

StatusOr<v1::JobState> Coordinator::cancel(const std::string& name) {
  v1::CancelJobRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(name);
  v1::CancelJobResponse response;
  const CallEnd end = call(*stubs_->jobs, &v1::Jobs::Stub::Cancel, request, response);
  if (!end.ok()) return explained(end);
  return response.state();
}

StatusOr<v1::JobState> Coordinator::pause(const std::string& name) {
  v1::PauseJobRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(name);
  v1::PauseJobResponse response;
  const CallEnd end = call(*stubs_->jobs, &v1::Jobs::Stub::Pause, request, response);
  if (!end.ok()) return explained(end);
  return response.state();
}

StatusOr<v1::JobState> Coordinator::resume(const std::string& name, const std::string& spec_yaml) {
  v1::ResumeJobRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(name);
  request.set_spec_yaml(spec_yaml);
  v1::ResumeJobResponse response;
  const CallEnd end = call(*stubs_->jobs, &v1::Jobs::Stub::Resume, request, response);
  if (!end.ok()) return explained(end);
  return response.state();
}

StatusOr<v1::Job> Coordinator::watch(const std::string& name, const std::function<void(const v1::Job&)>& see,
                                     const std::function<void(const Status&)>& away) {
  v1::WatchJobRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(name);
  v1::Job job;
  const auto subscribe = [&] {
    RunningStream stream(*this);
    Subscription result;
    const auto reader = stubs_->jobs->Watch(&stream.context, request);
    while (reader->Read(&job)) {
      result.answered = true;
      see(job);
    }
    result.end = end_of(stream.context, reader->Finish());
    result.complete = result.answered && has_ended(job.state());
    return result;
  };
  PENSTOCK_RETURN_IF_ERROR(keep_subscribed(subscribe, away));
  return job;
}

Status Coordinator::logs(const LogSelection& selection, const std::function<void(const v1::LogLine&)>& see,
                         const std::function<void(const Status&)>& away) {
  v1::LogsRequest request;
  request.mutable_caller()->set_principal(principal_);
  request.set_name(selection.job);
  if (selection.rank >= 0) request.set_rank(selection.rank);
  request.set_follow(selection.follow);
  SeenLines seen;
  const auto subscribe = [&] {
    RunningStream stream(*this);
    Subscription result;
    v1::LogLine line;
    const auto reader = stubs_->jobs->Logs(&stream.context, request);
    while (reader->Read(&line)) {
      result.answered = true;
      if (seen.is_new(line)) see(line);
    }
    result.end = end_of(stream.context, reader->Finish());
    result.complete = result.end.ok();
    seen.subscribed_again();
    return result;
  };
  return keep_subscribed(subscribe, away);
}

Status Coordinator::keep_subscribed(const std::function<Subscription()>& subscribe,
                                    const std::function<void(const Status&)>& away) {
  const SystemClock clock;
  bool ever_answered = false;
  bool away_told = false;
  TimePoint last_answer = clock.now();
  while (true) {
    const Subscription subscription = subscribe();
    if (subscription.complete) return ok_status();
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return cancelled("stopped");
    }
    if (subscription.answered) {
      ever_answered = true;
      away_told = false;
      last_answer = clock.now();
    }
    // A stream that ends well before the job has: the coordinator is going down in good order.
    const CallEnd end =
        subscription.end.ok() ? CallEnd{StatusCode::kUnavailable, "it ended the stream"} : subscription.end;
    if (!ever_answered || !may_come_back(end.code) || clock.now() - last_answer > policy_.away_max) {
      return explained(end);
    }
    if (end.code == StatusCode::kUnavailable && !std::exchange(away_told, true)) away(explained(end));
    if (!pause_unless_stopped()) return cancelled("stopped");
  }
}

bool Coordinator::pause_unless_stopped() {
  std::unique_lock lock(mutex_);
  return !stop_called_.wait_for(lock, policy_.retry_pause, [&] { return stopped_; });
}

void Coordinator::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (running_ != nullptr) running_->context.TryCancel();
  stop_called_.notify_all();
}

}  // namespace penstock::client
