// penstock-worker: the daemon of one host, and, with --executor, the child that it spawns for each assigned
// device.
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics/server.h"
#include "worker/agent/agent.h"
#include "worker/agent/health_server.h"
#include "worker/agent/host_facts.h"
#include "worker/executor/executor.h"

namespace penstock::worker {
namespace {

constexpr int kExecutorSocket = 3;

struct Arguments {
  std::string coordinator = "127.0.0.1:7070";
  std::string name;
  std::string host_id;
  int devices = 1;
  std::string listen = "127.0.0.1:0";
  std::string metrics = "127.0.0.1:0";
  std::string data_address = "127.0.0.1";
  int threads = 0;
  double orphan_bound_seconds = 30;
  bool executor = false;
  pid_t parent = 0;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("--coordinator", arguments.coordinator, "Coordinator to register with")
      ->capture_default_str();
  app.add_option("--name", arguments.name,
                 "Name of this worker, unique in the fleet (default: the host name)");
  app.add_option("--host-id", arguments.host_id,
                 "Names the machine, so that ranks that talk much are placed together");
  app.add_option("--devices", arguments.devices, "Device slots; one rank runs on each")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--listen", arguments.listen, "Address of health and reflection")->capture_default_str();
  app.add_option("--metrics", arguments.metrics, "Address of the Prometheus page")->capture_default_str();
  app.add_option("--data-address", arguments.data_address,
                 "Numeric address at which other ranks reach this host")
      ->capture_default_str();
  app.add_option("--threads", arguments.threads,
                 "Unused: the job file says how many threads a rank computes with");
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

// "0.0.0.0:9100" is where we listen, not where we are found.
std::string reachable(const std::string& listen, int port, const std::string& data_address) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  const bool everywhere = host.empty() || host == "0.0.0.0" || host == "[::]";
  return fmt::format("{}:{}", everywhere ? data_address : host, port);
}

AgentOptions agent_options(const Arguments& arguments, const std::string& metrics_address) {
  AgentOptions options;
  options.coordinator = arguments.coordinator;
  options.limits.orphan_bound =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(arguments.orphan_bound_seconds));
  Registration& registration = options.registration;
  registration.principal = "anonymous";
  registration.worker = arguments.name;
  registration.host_id = arguments.host_id.empty() ? host_id() : arguments.host_id;
  for (int i = 0; i < arguments.devices; ++i)
    registration.devices.push_back(DeviceSlot{"cpu", i, cpu_fingerprint()});
  registration.incarnation = new_incarnation(SystemClock());
  registration.pid = getpid();
  registration.metrics_address = metrics_address;
  registration.data_address = arguments.data_address;
  return options;
}

// SIGTERM and SIGINT arrive on the returned descriptor and nowhere else; before any thread starts, so that
// all inherit it. A peer that goes away is an error code, not a signal.
int block_termination() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Status serve(const Arguments& arguments) {
  const int termination = block_termination();
  auto registry = std::make_shared<prometheus::Registry>();
  PENSTOCK_ASSIGN_OR_RETURN(const auto metrics, MetricsServer::start(arguments.metrics, registry));
  PENSTOCK_ASSIGN_OR_RETURN(const auto health, HealthServer::start(arguments.listen));
  const std::string metrics_address = reachable(arguments.metrics, metrics->port(), arguments.data_address);
  log::info("serving health on port {} and metrics on {}; coordinator {}", health->port(), metrics_address,
            arguments.coordinator);
  Agent agent(agent_options(arguments, metrics_address), registry);
  agent.run(termination);
  log::info("drained");
  return ok_status();
}

}  // namespace
}  // namespace penstock::worker

int main(int argc, char** argv) {
  using namespace penstock;
  worker::Arguments arguments;
  CLI::App app("Penstock worker daemon");
  worker::declare(app, arguments);
  CLI11_PARSE(app, argc, argv);
  if (arguments.executor) return worker::run_executor(worker::kExecutorSocket, arguments.parent);

  if (arguments.name.empty()) arguments.name = worker::host_name();
  log::initialise(arguments.name);
  const Status served = worker::serve(arguments);
  if (served.ok()) return 0;
  log::error("{}", message(served));
  return 1;
}
