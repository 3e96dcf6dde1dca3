#include "coordinator/rpc/server.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "base/host_port.h"
#include "base/log.h"
#include "coordinator/rpc/broker_service.h"
#include "coordinator/rpc/jobs_service.h"
#include "coordinator/rpc/workers_service.h"

namespace penstock::coordinator {
namespace {

constexpr int kKeepaliveMs = 10'000;
// Below the workers' keepalive, which would end idle sessions otherwise.
constexpr int kShortestPingIntervalMs = 5'000;
constexpr std::chrono::milliseconds kStopPatience{1000};
constexpr const char* kServices[] = {"", "penstock.v1.Jobs", "penstock.v1.Workers", "penstock.v1.Broker"};

void configure(grpc::ServerBuilder& builder) {
  // Two coordinators on one port would share its workers.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kShortestPingIntervalMs);
  builder.SetMaxReceiveMessageSize(RpcServer::kLargestIncomingBytes);
}

// gRPC's own log, which explains one failure by a page of JSON, goes where only a debugger looks: what matters
// is said by the status that follows. The library stays up until the process ends: its last shutdown joins a
// poller that a blocked write may hold for ten seconds.
void prepare_grpc() {
  static const bool prepared = [] {
    gpr_set_log_function([](gpr_log_func_args* line) { log::debug("grpc: {}", line->message); });
    grpc_init();
    return true;
  }();
  (void)prepared;
}

class GrpcServer final : public RpcServer {
 public:
  GrpcServer(Controller& controller, std::shared_ptr<prometheus::Registry> registry, Duration register_within)
      : probe_(std::move(registry)),
        jobs_(StreamHouse{controller, streams_, probe_}),
        workers_(StreamHouse{controller, streams_, probe_}, register_within),
        broker_(StreamHouse{controller, streams_, probe_}) {}
  ~GrpcServer() override { stop(); }

  Status listen(const std::string& address) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    configure(builder);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&workers_);
    builder.RegisterService(&broker_);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0)
      return unavailable("cannot listen on {}: is the port taken, or the host not ours?", address);
    set_serving(true);
    return ok_status();
  }

  int port() const override { return port_; }

  void set_serving(bool serving) override {
    for (const char* service : kServices)
      server_->GetHealthCheckService()->SetServingStatus(service, serving);
  }

  void stop() override {
    if (!server_) return;
    set_serving(false);
    streams_.close_all(unavailable("the coordinator is stopping"));
    server_->Shutdown(std::chrono::system_clock::now() + kStopPatience);
    server_->Wait();
    server_.reset();
  }

 private:
  RpcProbe probe_;
  OpenStreams streams_;
  JobsService jobs_;
  WorkersService workers_;
  BrokerService broker_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

StatusOr<std::unique_ptr<RpcServer>> RpcServer::start(const std::string& address, Controller& controller,
                                                      std::shared_ptr<prometheus::Registry> registry,
                                                      Duration register_within) {
  prepare_grpc();
  PENSTOCK_RETURN_IF_ERROR(with_context(parse_host_port(address).status(), "listen address"));
  auto server = std::make_unique<GrpcServer>(controller, std::move(registry), register_within);
  PENSTOCK_RETURN_IF_ERROR(server->listen(address));
  return server;
}

}  // namespace penstock::coordinator
