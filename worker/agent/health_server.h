// The daemon's own gRPC door: health and reflection, so that any supervisor can ask whether it lives.
//
// Thread: start and the destructor from one thread; set_serving from any.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "base/status.h"

namespace penstock::worker {

class HealthServer {
 public:
  // `address` is "host:port"; port 0 picks a free one. InvalidArgument when it is none, Unavailable when
  // the port is taken.
  static StatusOr<std::unique_ptr<HealthServer>> start(const std::string& address);
  ~HealthServer();

  int port() const { return port_; }
  void set_serving(bool serving);

 private:
  HealthServer() = default;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace penstock::worker
