// A coordinator and its workers as child processes under one state directory: what `penstock up` runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "client/local_service/interrupt.h"
#include "client/local_service/process.h"

namespace penstock::client {

struct LocalServiceOptions {
  std::string binaries;             // folder of penstock-coordinator and penstock-worker
  std::string state = ".penstock";  // made when it is missing
  int workers = 1;
  std::string device = "cpu";
  int devices = 1;               // of each worker
  int coordinator_port = 0;      // 0: a free one
  std::optional<int> threads{};  // compute threads a worker, where the job does not say
  Duration start_max = 30s;      // for the coordinator to answer
  Duration drain_max = 10s;      // from SIGTERM to SIGKILL
};

// Order: the coordinator first, workers once it serves; stopped in reverse, so that no worker loses its
// coordinator. Files in the state directory: up.lock, coordinator.json, coordinator.log, worker-N.log, and
// the coordinator's own.
//
// Thread: the one that made it, which must be the program's main thread (see Process).
class LocalService {
 public:
  // FailedPrecondition when another one uses the state directory; Unavailable when the coordinator does not
  // come up, with the last lines of its log; Cancelled when interrupted.
  static StatusOr<LocalService> start(const LocalServiceOptions& options, const InterruptWatcher& interrupts);
  LocalService(LocalService&& other) noexcept;
  LocalService& operator=(LocalService&&) = delete;
  ~LocalService();

  const std::string& address() const { return address_; }
  const std::string& metrics() const { return metrics_; }
  const std::string& state() const { return options_.state; }
  pid_t coordinator_pid() const { return processes_.front().pid(); }
  std::vector<std::string> worker_names() const;

  // Children that have ended since the last call, each as a sentence with the place of its log.
  std::vector<std::string> newly_ended();
  bool coordinator_has_ended() { return processes_.front().has_ended(); }

  // SIGTERM to the workers, then to the coordinator; SIGKILL to what has not ended after drain_max, or at a
  // second interrupt. DeadlineExceeded names what had to be killed.
  Status stop(const InterruptWatcher& interrupts);

 private:
  explicit LocalService(const LocalServiceOptions& options) : options_(options) {}
  Status lock_state();
  Status start_coordinator(const InterruptWatcher& interrupts);
  Status start_workers();
  void stop_group(size_t first, size_t last, const std::function<bool()>& hurry,
                  std::vector<std::string>& killed);

  LocalServiceOptions options_;
  FileDescriptor lock_;
  std::string address_;
  std::string metrics_;
  std::vector<Process> processes_;  // the coordinator, then the workers
  std::vector<bool> reported_;      // its end has been said
};

// Where the coordinator says it serves, from the file that it writes: {"address": ..., "metrics": ..., "pid":
// ...}.
struct ServedAddress {
  std::string address;
  std::string metrics;
};
StatusOr<ServedAddress> read_address_file(const std::string& path);

}  // namespace penstock::client
