// The coordinator's gRPC door: Jobs, Workers, Broker, health and reflection. Decodes, asks the controller,
// encodes.
//
// Every call needs a deadline; anonymous callers are accepted from this machine only; malformed messages are
// answered with a status. Messages: at most kLargestIncomingBytes. Thread: start and stop from one thread,
// which must not be one of gRPC's.
#pragma once

#include <prometheus/registry.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "coordinator/controller/controller.h"

namespace penstock::coordinator {

class RpcServer {
 public:
  static constexpr int kLargestIncomingBytes = 16 << 20;

  // `address` is "host:port"; port 0 picks a free one. Unavailable when the port is taken. The controller
  // must outlive the server, and answer what it has been asked until stop() has returned.
  static StatusOr<std::unique_ptr<RpcServer>> start(const std::string& address, Controller& controller,
                                                    std::shared_ptr<prometheus::Registry> registry);
  virtual ~RpcServer() = default;  // stops

  virtual int port() const = 0;
  // Ends every stream with Unavailable, gives calls a second to be answered, and ends the server. Once.
  virtual void stop() = 0;
};

}  // namespace penstock::coordinator
