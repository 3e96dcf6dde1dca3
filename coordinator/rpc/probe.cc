#include "coordinator/rpc/probe.h"

#include <utility>

namespace penstock::coordinator {
namespace {

const prometheus::Histogram::BucketBoundaries kSeconds = {0.0001, 0.001, 0.01, 0.1, 1, 10};

}  // namespace

RpcProbe::RpcProbe(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)),
      requests_(prometheus::BuildCounter()
                    .Name("penstock_rpc_requests_total")
                    .Help("Calls and streams that have ended, by method and status code.")
                    .Register(*registry_)),
      seconds_(prometheus::BuildHistogram()
                   .Name("penstock_rpc_seconds")
                   .Help("Time from a unary call's arrival to its answer.")
                   .Register(*registry_)),
      streams_(prometheus::BuildGauge()
                   .Name("penstock_rpc_open_streams")
                   .Help("Streams that are open now.")
                   .Register(*registry_)) {}

void RpcProbe::call_ended(const std::string& method, StatusCode code, Duration took) {
  requests_.Add({{"method", method}, {"code", absl::StatusCodeToString(code)}}).Increment();
  seconds_.Add({{"method", method}}, kSeconds).Observe(to_seconds(took));
}

void RpcProbe::stream_opened(const std::string& method) {
  streams_.Add({{"method", method}}).Increment();
}

void RpcProbe::stream_ended(const std::string& method, StatusCode code) {
  streams_.Add({{"method", method}}).Decrement();
  requests_.Add({{"method", method}, {"code", absl::StatusCodeToString(code)}}).Increment();
}

}  // namespace penstock::coordinator
