// Workers: the daemons' sessions, the list of them, and who of them takes work.
#pragma once

#include "base/clock.h"
#include "coordinator/rpc/pull_stream.h"
#include "penstock/v1/workers.grpc.pb.h"

namespace penstock::coordinator {

class WorkersService final : public v1::Workers::CallbackService {
 public:
  // A session that has not registered within `register_within` ends.
  WorkersService(StreamHouse house, Duration register_within)
      : house_(house), register_within_(register_within) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListWorkersRequest* request,
                                 v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainWorkerRequest* request,
                                  v1::DrainWorkerResponse* response) override;
  grpc::ServerUnaryReactor* Uncordon(grpc::CallbackServerContext* context,
                                     const v1::UncordonWorkerRequest* request,
                                     v1::UncordonWorkerResponse* response) override;

 private:
  const StreamHouse house_;
  const Duration register_within_;
};

}  // namespace penstock::coordinator
