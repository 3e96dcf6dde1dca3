// Serves a Prometheus registry as text on /metrics, and small JSON pages beside it. Nothing else is served.
//
// Thread: start, add_page and stop from one thread; pages are made on the server's threads.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace penstock {

class MetricsServer {
 public:
  // `address` is "host:port"; port 0 picks a free one. Unavailable when the port is taken.
  static StatusOr<std::unique_ptr<MetricsServer>> start(const std::string& address,
                                                        std::shared_ptr<prometheus::Registry> registry);
  virtual ~MetricsServer() = default;

  virtual int port() const = 0;
  // Serves `make()` as application/json on `path` ("/sd" for Prometheus HTTP service discovery).
  virtual void add_page(const std::string& path, std::function<std::string()> make) = 0;
};

}  // namespace penstock
