// Workers: the daemons' sessions, and the list of them.
#pragma once

#include "coordinator/rpc/pull_stream.h"
#include "penstock/v1/workers.grpc.pb.h"

namespace penstock::coordinator {

class WorkersService final : public v1::Workers::CallbackService {
 public:
  explicit WorkersService(StreamHouse house) : house_(house) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListWorkersRequest* request,
                                 v1::ListWorkersResponse* response) override;

 private:
  const StreamHouse house_;
};

}  // namespace penstock::coordinator
