#include "worker/agent/health_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>

#include "base/host_port.h"
#include "worker/agent/grpc_library.h"

namespace penstock::worker {

StatusOr<std::unique_ptr<HealthServer>> HealthServer::start(const std::string& address) {
  prepare_grpc();
  PENSTOCK_RETURN_IF_ERROR(with_context(parse_host_port(address).status(), "listen address"));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto made = std::unique_ptr<HealthServer>(new HealthServer());
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &made->port_);
  made->server_ = builder.BuildAndStart();
  if (!made->server_ || made->port_ == 0)
    return unavailable("cannot listen on {}: is the port taken, or the host not ours?", address);
  made->set_serving(true);
  return made;
}

HealthServer::~HealthServer() {
  if (server_) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
}

void HealthServer::set_serving(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus("", serving);
}

}  // namespace penstock::worker
