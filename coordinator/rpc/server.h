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

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/controller/controller.h"

namespace penstock::coordinator {

class RpcServer {
 public:
  static constexpr int kLargestIncomingBytes = 16 << 20;

  static constexpr Duration kRegisterWithin = 10s;

  // `address` is "host:port"; port 0 picks a free one. InvalidArgument when it is none, Unavailable when the
  // port is taken. The controller must outlive the server, and answer what it has been asked until stop() has
  // returned. A worker's stream that does not register within `register_within` ends.
  static StatusOr<std::unique_ptr<RpcServer>> start(const std::string& address, Controller& controller,
                                                    std::shared_ptr<prometheus::Registry> registry,
                                                    Duration register_within = kRegisterWithin);
  virtual ~RpcServer() = default;  // stops

  virtual int port() const = 0;
  // What the health service answers from now on; Serving from the start.
  virtual void set_serving(bool serving) = 0;
  // Ends every stream with Unavailable, gives calls a second to be answered, and ends the server. Once.
  virtual void stop() = 0;
};

}  // namespace penstock::coordinator
