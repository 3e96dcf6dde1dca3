// Counts calls for Prometheus: penstock_rpc_requests_total{method,code}, penstock_rpc_seconds{method} and
// penstock_rpc_open_streams{method}. Methods and codes are few, so the series are bounded.
//
// Thread: any.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace penstock::coordinator {

class RpcProbe {
 public:
  explicit RpcProbe(std::shared_ptr<prometheus::Registry> registry);

  void call_ended(const std::string& method, StatusCode code, Duration took);
  void stream_opened(const std::string& method);
  void stream_ended(const std::string& method, StatusCode code);

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  prometheus::Family<prometheus::Gauge>& streams_;
};

}  // namespace penstock::coordinator
