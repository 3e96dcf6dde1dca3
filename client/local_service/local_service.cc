#include "client/local_service/local_service.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace penstock::client {
namespace {

constexpr Duration kPoll = 10ms;

std::string ended_sentence(const Process& process) {
  return fmt::format("{} (pid {}) has ended with {}; its log: {}", process.name(), process.pid(),
                     process.ending(), process.log());
}

// The end of a log, set in, as part of an error.
std::string quoted_log(const Process& process) {
  std::string text;
  for (const std::string& line : split_on(trim(process.last_log_lines(8)), '\n')) {
    if (!line.empty()) text += "\n  | " + line;
  }
  return text;
}

}  // namespace

StatusOr<ServedAddress> read_address_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return not_found("{}: not there", path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  const auto text = [&](const char* name) {
    const bool there = json.is_object() && json.contains(name) && json[name].is_string();
    return there ? json[name].get<std::string>() : std::string();
  };
  ServedAddress served{text("address"), text("metrics")};
  if (served.address.empty()) return invalid_argument("{}: expected an object with \"address\"", path);
  return served;
}

StatusOr<LocalService> LocalService::start(const LocalServiceOptions& options,
                                           const InterruptWatcher& interrupts) {
  LocalService service(options);
  PENSTOCK_RETURN_IF_ERROR(service.lock_state());
  Status started = service.start_coordinator(interrupts);
  if (started.ok()) started = service.start_workers();
  if (started.ok()) return service;
  service.stop(interrupts).IgnoreError();  // the reason why it did not start says more
  return started;
}

LocalService::LocalService(LocalService&& other) noexcept
    : options_(std::move(other.options_)),
      lock_(std::move(other.lock_)),
      address_(std::move(other.address_)),
      metrics_(std::move(other.metrics_)),
      processes_(std::move(other.processes_)),
      reported_(std::move(other.reported_)) {}

LocalService::~LocalService() {
  // Workers first, as in stop(); what has been stopped already is gone.
  while (!processes_.empty()) processes_.pop_back();
}

Status LocalService::lock_state() {
  std::error_code failure;
  std::filesystem::create_directories(options_.state, failure);
  if (failure) return unavailable("state directory {}: {}", options_.state, failure.message());
  const std::string path = options_.state + "/up.lock";
  lock_ = FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_.is_open()) return unavailable("{}: {}", path, std::strerror(errno));
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return failed_precondition(
        "state directory {} is in use by another `penstock up`; stop it, or use another --state",
        options_.state);
  }
  return ok_status();
}

Status LocalService::start_coordinator(const InterruptWatcher& interrupts) {
  const std::string address_file = options_.state + "/coordinator.json";
  std::filesystem::remove(address_file);  // the one of the last run
  PENSTOCK_ASSIGN_OR_RETURN(
      Process started,
      Process::start(
          {.name = "coordinator",
           .binary = options_.binaries + "/penstock-coordinator",
           .arguments = {"--listen", fmt::format("127.0.0.1:{}", options_.coordinator_port), "--metrics",
                         "127.0.0.1:0", "--state", options_.state, "--address-file", address_file},
           .log = options_.state + "/coordinator.log"}));
  processes_.push_back(std::move(started));
  reported_.push_back(false);

  const SystemClock clock;
  const TimePoint last = clock.now() + options_.start_max;
  while (true) {
    if (const StatusOr<ServedAddress> served = read_address_file(address_file); served.ok()) {
      address_ = served->address;
      metrics_ = served->metrics;
      return ok_status();
    }
    Process& coordinator = processes_.front();
    if (coordinator.has_ended()) {
      return unavailable("the coordinator ended with {} before it served{}", coordinator.ending(),
                         quoted_log(coordinator));
    }
    if (clock.now() > last) {
      return unavailable("the coordinator did not serve within {:.0f} s{}", to_seconds(options_.start_max),
                         quoted_log(coordinator));
    }
    if (interrupts.wait_for(kPoll)) return cancelled("interrupted");
  }
}

Status LocalService::start_workers() {
  for (int i = 0; i < options_.workers; ++i) {
    const std::string name = fmt::format("worker-{}", i);
    std::vector<std::string> arguments = {
        "--coordinator", address_,        "--name",    name,
        "--device",      options_.device, "--devices", fmt::format("{}", options_.devices)};
    if (options_.threads)
      arguments.insert(arguments.end(), {"--threads", fmt::format("{}", *options_.threads)});
    PENSTOCK_ASSIGN_OR_RETURN(Process started,
                              Process::start({.name = name,
                                              .binary = options_.binaries + "/penstock-worker",
                                              .arguments = std::move(arguments),
                                              .log = options_.state + "/" + name + ".log"}));
    processes_.push_back(std::move(started));
    reported_.push_back(false);
  }
  return ok_status();
}

std::vector<std::string> LocalService::worker_names() const {
  std::vector<std::string> names;
  for (size_t i = 1; i < processes_.size(); ++i) names.push_back(processes_[i].name());
  return names;
}

std::vector<std::string> LocalService::newly_ended() {
  std::vector<std::string> sentences;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (reported_[i] || !processes_[i].has_ended()) continue;
    reported_[i] = true;
    sentences.push_back(ended_sentence(processes_[i]) + quoted_log(processes_[i]));
  }
  return sentences;
}

void LocalService::stop_group(size_t first, size_t last, const std::function<bool()>& hurry,
                              std::vector<std::string>& killed) {
  const SystemClock clock;
  const auto any_running = [&] {
    bool running = false;
    for (size_t i = first; i < last; ++i) running |= !processes_[i].has_ended();
    return running;
  };
  for (size_t i = first; i < last; ++i) processes_[i].send(SIGTERM);
  const TimePoint deadline = clock.now() + options_.drain_max;
  while (any_running() && clock.now() < deadline && !hurry()) {
    std::this_thread::sleep_for(kPoll);
  }
  for (size_t i = first; i < last; ++i) {
    if (processes_[i].has_ended()) continue;
    killed.push_back(processes_[i].name());
    processes_[i].send(SIGKILL);
  }
  while (any_running()) std::this_thread::sleep_for(kPoll);
}

Status LocalService::stop(const InterruptWatcher& interrupts) {
  std::vector<std::string> killed;
  const auto hurry = [&, before = interrupts.count()] { return interrupts.count() > before; };
  const size_t workers = std::min<size_t>(processes_.size(), 1);
  stop_group(workers, processes_.size(), hurry, killed);
  stop_group(0, workers, hurry, killed);
  if (killed.empty()) return ok_status();
  return deadline_exceeded("{} had to be killed: no end within {:.0f} s of SIGTERM; logs: {}/*.log",
                           list_cut(killed), to_seconds(options_.drain_max), options_.state);
}

}  // namespace penstock::client
