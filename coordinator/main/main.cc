// penstock-coordinator: builds the store, the controller and its doors, serves until it is told to end.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/metrics/server.h"
#include "base/termination.h"
#include "coordinator/controller/core_controller.h"
#include "coordinator/rpc/server.h"
#include "coordinator/rpc/service_discovery.h"
#include "coordinator/store/sqlite_store.h"

namespace penstock::coordinator {
namespace {

constexpr unsigned kEndBoundSeconds = 10;
constexpr int kFailed = 1;
constexpr int kWrongArguments = 2;

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

// What a user has to write differently, before anything is made.
Status check(const Arguments& arguments) {
  PENSTOCK_RETURN_IF_ERROR(with_context(parse_host_port(arguments.listen).status(), "--listen"));
  PENSTOCK_RETURN_IF_ERROR(with_context(parse_host_port(arguments.metrics).status(), "--metrics"));
  return arguments.state.empty() ? invalid_argument("--state: expected a folder, found \"\"") : ok_status();
}

// `listen` has passed check().
std::string with_port(const std::string& listen, int port) {
  return to_string(HostPort{parse_host_port(listen)->host, static_cast<uint16_t>(port)});
}

StatusOr<std::unique_ptr<Store>> open_store(const std::string& folder) {
  if (const Status made = make_folder(folder); !made.ok()) return with_context(made, "state folder");
  return open_sqlite_store(folder + "/coordinator.db");
}

// By rename, so that a reader sees all of it or nothing.
Status write_file(const std::string& path, const std::string& text) {
  const std::string draft = fmt::format("{}.{}", path, getpid());
  errno = 0;
  std::ofstream file(draft, std::ios::trunc);
  file << text << '\n';
  file.close();
  const int reason = errno;
  if (!file) return unavailable("address file {} cannot be written: {}", path, std::strerror(reason));
  std::error_code failure;
  std::filesystem::rename(draft, path, failure);
  if (!failure) return ok_status();
  std::error_code ignored;
  std::filesystem::remove(draft, ignored);
  return unavailable("address file {} cannot be written: {}", path, failure.message());
}

// The file first: who reads the line may rely on it.
Status announce(const Arguments& arguments, int port, int metrics_port) {
  const std::string text = nlohmann::json{
      {"address", with_port(arguments.listen, port)},
      {"metrics", with_port(arguments.metrics, metrics_port)},
      {"pid", getpid()}}.dump();
  if (!arguments.address_file.empty()) PENSTOCK_RETURN_IF_ERROR(write_file(arguments.address_file, text));
  std::cout << text << std::endl;
  return ok_status();
}

Status serve(const Arguments& arguments) {
  const sigset_t termination = block_termination();
  const SystemClock clock;
  auto registry = std::make_shared<prometheus::Registry>();
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, open_store(arguments.state));
  ControllerOptions options;
  options.core.weights_root =
      (std::filesystem::absolute(arguments.state).lexically_normal() / "jobs").string();
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
  rpc->set_serving(false);
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : coordinator::kWrongArguments;
  }
  if (const Status checked = coordinator::check(arguments); !checked.ok()) {
    std::cerr << message(checked) << std::endl;
    return coordinator::kWrongArguments;
  }
  log::initialise("coordinator");
  const Status served = coordinator::serve(arguments);
  if (served.ok()) return 0;
  log::error("{}", message(served));
  return coordinator::kFailed;
}
