// Jobs: decodes, asks the controller, encodes.
#pragma once

#include "coordinator/rpc/pull_stream.h"
#include "penstock/v1/jobs.grpc.pb.h"

namespace penstock::coordinator {

class JobsService final : public v1::Jobs::CallbackService {
 public:
  explicit JobsService(StreamHouse house) : house_(house) {}

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context, const v1::SubmitRequest* request,
                                   v1::SubmitResponse* response) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                v1::Job* response) override;
  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context, const v1::TraceRequest* request,
                                  v1::TraceResponse* response) override;
  grpc::ServerUnaryReactor* Measurements(grpc::CallbackServerContext* context,
                                         const v1::MeasurementsRequest* request,
                                         v1::MeasurementsResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                 v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::Job>* Watch(grpc::CallbackServerContext* context,
                                           const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context, const v1::CancelJobRequest* request,
                                   v1::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context, const v1::PauseJobRequest* request,
                                  v1::PauseJobResponse* response) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context, const v1::ResumeJobRequest* request,
                                   v1::ResumeJobResponse* response) override;
  grpc::ServerWriteReactor<v1::LogLine>* Logs(grpc::CallbackServerContext* context,
                                              const v1::LogsRequest* request) override;

 private:
  const StreamHouse house_;
};

}  // namespace penstock::coordinator
