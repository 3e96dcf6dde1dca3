// penstock-coordinator: builds the store, the controller and its doors, serves until it is told to end.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics/server.h"
#include "coordinator/controller/core_controller.h"
#include "coordinator/rpc/service_discovery.h"
#include "coordinator/rpc/server.h"
#include "coordinator/store/sqlite_store.h"

namespace penstock::coordinator {
namespace {

constexpr unsigned kEndBoundSeconds = 10;

struct Arguments {
  std::string listen = "127.0.0.1:7070";
  std::string metrics = "127.0.0.1:0";
  std::string state = ".penstock";
  std::string address_file;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("--listen", arguments.listen, "Address of the service; port 0 picks a free one")
      ->capture_default_str();
  app.add_option("--metrics", arguments.metrics, "Address of the Prometheus page; port 0 picks a free one")
      ->capture_default_str();
  app.add_option("--state", arguments.state, "Folder of what must outlive this process")
      ->capture_default_str();
  app.add_option("--address-file", arguments.address_file, "Written with the addresses once they are served");
}

std::string with_port(const std::string& listen, int port) {
  return fmt::format("{}:{}", listen.substr(0, listen.rfind(':')), port);
}

StatusOr<std::unique_ptr<Store>> open_store(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return unavailable("state folder {} cannot be made: {}", folder, failure.message());
  return open_sqlite_store(folder + "/coordinator.db");
}

// By rename, so that a reader sees all of it or nothing.
Status write_file(const std::string& path, const std::string& text) {
  const std::string draft = fmt::format("{}.{}", path, getpid());
  std::ofstream file(draft, std::ios::trunc);
  file << text << '\n';
  file.close();
  std::error_code failure;
  if (file) std::filesystem::rename(draft, path, failure);
  if (!file || failure) return unavailable("address file {} cannot be written: {}", path, failure.message());
  return ok_status();
}

Status announce(const Arguments& arguments, int port, int metrics_port) {
  const std::string text = nlohmann::json{
      {"address", with_port(arguments.listen, port)},
      {"metrics", with_port(arguments.metrics, metrics_port)},
      {"pid", getpid()}}.dump();
  std::cout << text << std::endl;
  return arguments.address_file.empty() ? ok_status() : write_file(arguments.address_file, text);
}

// SIGTERM and SIGINT wait for sigwait; before any thread starts, so that all inherit it. A peer that goes
// away is an error code, not a signal.
sigset_t block_termination() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

Status serve(const Arguments& arguments) {
  const sigset_t termination = block_termination();
  const SystemClock clock;
  auto registry = std::make_shared<prometheus::Registry>();
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, open_store(arguments.state));
  ControllerOptions options;
  options.core.instance = fmt::format("coordinator-{}", getpid());
  PENSTOCK_ASSIGN_OR_RETURN(const auto controller,
                            CoreController::start(options, std::move(store), registry, clock));
  PENSTOCK_ASSIGN_OR_RETURN(const auto metrics, MetricsServer::start(arguments.metrics, registry));
  metrics->add_page("/sd", [&controller] { return discovery_page(*controller); });
  PENSTOCK_ASSIGN_OR_RETURN(const auto rpc, RpcServer::start(arguments.listen, *controller, registry));
  PENSTOCK_RETURN_IF_ERROR(announce(arguments, rpc->port(), metrics->port()));
  log::info("{} serves on {}", options.core.instance, with_port(arguments.listen, rpc->port()));

  int number = 0;
  sigwait(&termination, &number);
  log::info("{}: ending", strsignal(number));
  alarm(kEndBoundSeconds);  // whatever hangs: ended by the signal, as the promise is
  // The controller first: it ends the sessions itself, and no running job is taken for one whose workers were
  // lost.
  const Status stopped = controller->stop();
  rpc->stop();
  return stopped;
}

}  // namespace
}  // namespace penstock::coordinator

int main(int argc, char** argv) {
  using namespace penstock;
  coordinator::Arguments arguments;
  CLI::App app("Penstock coordinator");
  coordinator::declare(app, arguments);
  CLI11_PARSE(app, argc, argv);
  log::initialise("coordinator");
  const Status served = coordinator::serve(arguments);
  if (served.ok()) return 0;
  log::error("{}", message(served));
  return 1;
}
