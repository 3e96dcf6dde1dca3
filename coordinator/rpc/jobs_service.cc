#include "coordinator/rpc/jobs_service.h"

#include "coordinator/rpc/admission.h"
#include "coordinator/rpc/unary.h"
#include "proto/codec/limits.h"

namespace penstock::coordinator {
namespace {

class WatchStream final : public PullStream<v1::Job, JobView> {
 public:
  WatchStream(StreamHouse house, std::string name)
      : PullStream(house, "Jobs.Watch"), name_(std::move(name)) {}

 private:
  WaitId ask(Controller& controller, std::function<void(StatusOr<JobView>)> done) override {
    return controller.wait_job(JobWait{name_, version_, false}, std::move(done));
  }
  bool take(JobView view, std::deque<v1::Job>& messages) override {
    if (version_ != 0) {  // what hardly changes, and may be a million bytes long
      view.spec_yaml.clear();
      view.memory.clear();
    }
    version_ = view.version;
    messages.push_back(to_proto(view));
    return view.ended();
  }

  const std::string name_;
  uint64_t version_ = 0;
};

class LogStream final : public PullStream<v1::LogLine, LogPage> {
 public:
  LogStream(StreamHouse house, LogWait wait) : PullStream(house, "Jobs.Logs"), request_(std::move(wait)) {}

 private:
  WaitId ask(Controller& controller, std::function<void(StatusOr<LogPage>)> done) override {
    return controller.wait_logs(request_, std::move(done));
  }
  bool take(LogPage page, std::deque<v1::LogLine>& messages) override {
    const bool idle = page.lines.empty();
    if (page.lost > 0) messages.push_back(gap(page));
    for (const LogLineView& line : page.lines) messages.push_back(to_proto(line));
    request_.cursor = page.next;
    return page.ended || (idle && !request_.follow);
  }
  v1::LogLine gap(const LogPage& page) const {
    v1::LogLine line;
    line.set_rank(request_.rank.value);
    line.set_unix_ms(page.lines.empty() ? 0 : page.lines.front().unix_ms);
    line.set_text(fmt::format("[{} earlier lines are no longer kept]", page.lost));
    return line;
  }

  LogWait request_;
};

}  // namespace

grpc::ServerUnaryReactor* JobsService::Submit(grpc::CallbackServerContext* context,
                                              const v1::SubmitRequest* request,
                                              v1::SubmitResponse* response) {
  Answer answer(context, house_.probe, "Jobs.Submit");
  if (!answer.admits(request->caller())) return answer.reactor();
  if (request->spec_yaml().size() > codec::kLargestSpecBytes)
    return answer.refuse(invalid_argument("spec_yaml: at most {} bytes expected, found {}",
                                          codec::kLargestSpecBytes, request->spec_yaml().size()));
  if (request->request_id().size() > codec::kLongestName)
    return answer.refuse(invalid_argument("request_id: at most {} bytes expected, found {}",
                                          codec::kLongestName, request->request_id().size()));
  house_.controller.submit(SubmitCall{.principal = answer.principal(),
                                      .spec_yaml = request->spec_yaml(),
                                      .request_id = request->request_id(),
                                      .dry_run = request->dry_run(),
                                      .is_abandoned = [context] { return context->IsCancelled(); }},
                           [answer, response](StatusOr<SubmitOutcome> outcome) {
                             if (outcome.ok()) *response = to_proto(*outcome);
                             answer.finish(outcome.status());
                           });
  return answer.reactor();
}

grpc::ServerUnaryReactor* JobsService::Get(grpc::CallbackServerContext* context,
                                           const v1::GetJobRequest* request, v1::Job* response) {
  Answer answer(context, house_.probe, "Jobs.Get");
  if (!answer.admits(request->caller())) return answer.reactor();
  house_.controller.get_job(request->name(), request->include_losses(),
                            [answer, response](StatusOr<JobView> view) {
                              if (view.ok()) *response = to_proto(*view);
                              answer.finish(view.status());
                            });
  return answer.reactor();
}

grpc::ServerUnaryReactor* JobsService::Trace(grpc::CallbackServerContext* context,
                                             const v1::TraceRequest* request, v1::TraceResponse* response) {
  Answer answer(context, house_.probe, "Jobs.Trace");
  if (!answer.admits(request->caller())) return answer.reactor();
  const std::optional<int64_t> step = request->has_step() ? std::optional(request->step()) : std::nullopt;
  house_.controller.get_trace(request->name(), step, [answer, response](StatusOr<TraceView> view) {
    StatusOr<v1::TraceResponse> traced = view.ok() ? to_proto(*view) : view.status();
    if (traced.ok()) *response = *std::move(traced);
    answer.finish(traced.status());
  });
  return answer.reactor();
}

grpc::ServerUnaryReactor* JobsService::Measurements(grpc::CallbackServerContext* context,
                                                    const v1::MeasurementsRequest* request,
                                                    v1::MeasurementsResponse* response) {
  Answer answer(context, house_.probe, "Jobs.Measurements");
  if (!answer.admits(request->caller())) return answer.reactor();
  house_.controller.get_measurements(request->name(), [answer, response](StatusOr<MeasurementsView> view) {
    if (view.ok()) *response = to_proto(*view);
    answer.finish(view.status());
  });
  return answer.reactor();
}

grpc::ServerUnaryReactor* JobsService::List(grpc::CallbackServerContext* context,
                                            const v1::ListJobsRequest* request,
                                            v1::ListJobsResponse* response) {
  Answer answer(context, house_.probe, "Jobs.List");
  if (!answer.admits(request->caller())) return answer.reactor();
  house_.controller.list_jobs([answer, response](StatusOr<std::vector<JobView>> views) {
    if (views.ok()) {
      for (const JobView& view : *views) *response->add_jobs() = to_proto(view);
    }
    answer.finish(views.status());
  });
  return answer.reactor();
}

grpc::ServerUnaryReactor* JobsService::Cancel(grpc::CallbackServerContext* context,
                                              const v1::CancelJobRequest* request,
                                              v1::CancelJobResponse* response) {
  Answer answer(context, house_.probe, "Jobs.Cancel");
  if (!answer.admits(request->caller())) return answer.reactor();
  house_.controller.cancel_job(request->name(), answer.principal(),
                               [answer, response](StatusOr<JobState> state) {
                                 if (state.ok()) response->set_state(to_proto(*state));
                                 answer.finish(state.status());
                               });
  return answer.reactor();
}

grpc::ServerUnaryReactor* JobsService::Pause(grpc::CallbackServerContext* context,
                                             const v1::PauseJobRequest* request,
                                             v1::PauseJobResponse* response) {
  Answer answer(context, house_.probe, "Jobs.Pause");
  if (!answer.admits(request->caller())) return answer.reactor();
  house_.controller.pause_job(request->name(), answer.principal(),
                              [answer, response](StatusOr<JobState> state) {
                                if (state.ok()) response->set_state(to_proto(*state));
                                answer.finish(state.status());
                              });
  return answer.reactor();
}

grpc::ServerUnaryReactor* JobsService::Resume(grpc::CallbackServerContext* context,
                                              const v1::ResumeJobRequest* request,
                                              v1::ResumeJobResponse* response) {
  Answer answer(context, house_.probe, "Jobs.Resume");
  if (!answer.admits(request->caller())) return answer.reactor();
  if (request->spec_yaml().size() > codec::kLargestSpecBytes)
    return answer.refuse(invalid_argument("spec_yaml: at most {} bytes expected, found {}",
                                          codec::kLargestSpecBytes, request->spec_yaml().size()));
  house_.controller.resume_job(
      ResumeCall{.name = request->name(), .principal = answer.principal(), .spec_yaml = request->spec_yaml()},
      [answer, response](StatusOr<JobState> state) {
        if (state.ok()) response->set_state(to_proto(*state));
        answer.finish(state.status());
      });
  return answer.reactor();
}

grpc::ServerWriteReactor<v1::Job>* JobsService::Watch(grpc::CallbackServerContext* context,
                                                      const v1::WatchJobRequest* request) {
  auto stream = std::make_shared<WatchStream>(house_, request->name());
  WatchStream* reactor = stream.get();
  reactor->start(std::move(stream), admit(*context, request->caller()).status());
  return reactor;
}

grpc::ServerWriteReactor<v1::LogLine>* JobsService::Logs(grpc::CallbackServerContext* context,
                                                         const v1::LogsRequest* request) {
  LogWait wait;
  wait.name = request->name();
  if (request->has_rank()) wait.rank = RankIndex(request->rank());
  wait.follow = request->follow();
  Status admitted = admit(*context, request->caller()).status();
  if (admitted.ok() && request->has_rank() && request->rank() < 0)
    admitted = invalid_argument("rank: 0 or more expected, found {}", request->rank());
  auto stream = std::make_shared<LogStream>(house_, std::move(wait));
  LogStream* reactor = stream.get();
  reactor->start(std::move(stream), admitted);
  return reactor;
}

}  // namespace penstock::coordinator
