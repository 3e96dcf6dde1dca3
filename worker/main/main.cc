// penstock-worker: the daemon of one host, and, with --executor, the child that it spawns for each assigned
// device.
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/metrics/server.h"
#include "base/termination.h"
#include "plan/spec/limits.h"
#include "proto/codec/wire.h"
#include "worker/agent/addresses.h"
#include "worker/agent/agent.h"
#include "worker/agent/health_server.h"
#include "worker/agent/host_facts.h"
#include "worker/executor/executor.h"

namespace penstock::worker {
namespace {

constexpr int kExecutorSocket = 3;
constexpr int kFailed = 1;
constexpr int kRefused = 2;  // by us or by the coordinator: someone must start it differently

struct Arguments {
  std::string coordinator = "127.0.0.1:7070";
  std::string name;
  std::string principal;
  std::string host_id;
  std::string device = "cpu";
  int devices = 1;
  std::string listen = "127.0.0.1:0";
  std::string metrics = "127.0.0.1:0";
  std::string data_address = "127.0.0.1";
  int threads = 1;
  double orphan_bound_seconds = 30;
  bool executor = false;
  pid_t parent = 0;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("--coordinator", arguments.coordinator, "Coordinator to register with")
      ->capture_default_str();
  app.add_option("--name", arguments.name,
                 "Name of this worker, unique in the fleet (default: the host name)");
  app.add_option("--principal", arguments.principal,
                 "Who this worker is to the coordinator (default: worker:NAME)")
      ->envname("PENSTOCK_PRINCIPAL");
  app.add_option("--host-id", arguments.host_id,
                 "Names the machine, so that ranks that talk much are placed together");
  app.add_option("--device", arguments.device,
                 "What ranks run on; emulated: timed waits, nothing is computed")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "emulated"}));
  app.add_option("--devices", arguments.devices, "Device slots; one rank runs on each")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--listen", arguments.listen, "Address of health and reflection")->capture_default_str();
  app.add_option("--metrics", arguments.metrics, "Address of the Prometheus page")->capture_default_str();
  app.add_option("--data-address", arguments.data_address,
                 "Numeric address at which other ranks reach this host")
      ->capture_default_str();
  app.add_option("--threads", arguments.threads,
                 "Compute threads of a rank, where the job file's device.threads does not say")
      ->capture_default_str()
      ->check(CLI::Range(1, plan::kMostThreads));
  app.add_option("--orphan-bound", arguments.orphan_bound_seconds,
                 "Seconds for which ranks go on without a coordinator")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--executor", arguments.executor, "Run as the executor of a daemon (it passes this itself)");
  app.add_option("--parent", arguments.parent, "Process id of that daemon");
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

void fill_defaults(Arguments& arguments) {
  if (arguments.name.empty()) arguments.name = host_name();
  if (arguments.host_id.empty()) arguments.host_id = host_id();
}

AgentOptions agent_options(const Arguments& arguments, const std::string& metrics_address) {
  AgentOptions options;
  options.coordinator = arguments.coordinator;
  options.limits.orphan_bound =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(arguments.orphan_bound_seconds));
  options.threads = arguments.threads;
  Registration& registration = options.registration;
  registration.principal = arguments.principal.empty() ? "worker:" + arguments.name : arguments.principal;
  registration.worker = arguments.name;
  registration.host_id = arguments.host_id;
  const std::string fingerprint = arguments.device == "cpu" ? cpu_fingerprint() : arguments.device;
  for (int i = 0; i < arguments.devices; ++i)
    registration.devices.push_back(DeviceSlot{arguments.device, i, fingerprint});
  registration.incarnation = new_incarnation(SystemClock());
  registration.pid = getpid();
  registration.metrics_address = metrics_address;
  registration.data_address = arguments.data_address;
  return options;
}

// What a user has to write differently, before anything is started.
Status check(const Arguments& arguments) {
  const StatusOr<HostPort> coordinator = parse_host_port(arguments.coordinator);
  PENSTOCK_RETURN_IF_ERROR(with_context(coordinator.status(), "--coordinator"));
  if (coordinator->port == 0) return invalid_argument("--coordinator: expected a port from 1, found 0");
  PENSTOCK_RETURN_IF_ERROR(with_context(parse_host_port(arguments.listen).status(), "--listen"));
  PENSTOCK_RETURN_IF_ERROR(with_context(parse_host_port(arguments.metrics).status(), "--metrics"));
  PENSTOCK_RETURN_IF_ERROR(with_context(check_data_address(arguments.data_address), "--data-address"));
  // The rest as the coordinator will: --name, --principal, --host-id. A principal made of the name must not be
  // what a wrong name is blamed on.
  Registration registration = agent_options(arguments, arguments.metrics).registration;
  registration.principal = arguments.principal;
  return codec::from_proto(codec::to_proto(registration)).status();
}

Status serve(const Arguments& arguments) {
  const sigset_t set = block_termination();
  const int termination = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  auto registry = std::make_shared<prometheus::Registry>();
  PENSTOCK_ASSIGN_OR_RETURN(const auto metrics, MetricsServer::start(arguments.metrics, registry));
  PENSTOCK_ASSIGN_OR_RETURN(const auto health, HealthServer::start(arguments.listen));
  PENSTOCK_ASSIGN_OR_RETURN(const HostPort metrics_listen, parse_host_port(arguments.metrics));
  const std::string metrics_address =
      reachable_address(metrics_listen, metrics->port(), arguments.data_address);
  log::info("serving health on port {} and metrics on {}; coordinator {}", health->port(), metrics_address,
            arguments.coordinator);
  AgentOptions options = agent_options(arguments, metrics_address);
  options.draining = [&health] { health->set_serving(false); };
  Agent agent(std::move(options), registry);
  PENSTOCK_RETURN_IF_ERROR(agent.run(termination));
  log::info("drained");
  return ok_status();
}

// Whether the same command line would fail the next time, too.
bool is_refusal(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kPermissionDenied ||
         status.code() == StatusCode::kAborted;
}

}  // namespace
}  // namespace penstock::worker

int main(int argc, char** argv) {
  using namespace penstock;
  worker::Arguments arguments;
  CLI::App app("Penstock worker daemon");
  worker::declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : worker::kRefused;
  }
  if (arguments.executor) return worker::run_executor(worker::kExecutorSocket, arguments.parent);

  worker::fill_defaults(arguments);
  if (const Status checked = worker::check(arguments); !checked.ok()) {
    std::cerr << message(checked) << std::endl;
    return worker::kRefused;
  }
  log::initialise(arguments.name);
  const Status served = worker::serve(arguments);
  if (served.ok()) return 0;
  log::error("{}", message(served));
  return worker::is_refusal(served) ? worker::kRefused : worker::kFailed;
}
