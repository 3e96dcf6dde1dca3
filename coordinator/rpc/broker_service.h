// Broker: decodes, asks the controller, encodes.
#pragma once

#include "coordinator/rpc/pull_stream.h"
#include "penstock/v1/broker.grpc.pb.h"

namespace penstock::coordinator {

class BrokerService final : public v1::Broker::CallbackService {
 public:
  explicit BrokerService(StreamHouse house) : house_(house) {}

  grpc::ServerUnaryReactor* Publish(grpc::CallbackServerContext* context, const v1::PublishRequest* request,
                                    v1::PublishResponse* response) override;
  grpc::ServerUnaryReactor* LookUp(grpc::CallbackServerContext* context, const v1::LookUpRequest* request,
                                   v1::LookUpResponse* response) override;

 private:
  const StreamHouse house_;
};

}  // namespace penstock::coordinator
