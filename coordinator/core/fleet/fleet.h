// The workers: their incarnations, leases and device slots.
//
// A worker is known by name; each life of its process has a greater incarnation. A device slot holds at most
// one rank:
//
//     Free -> Held (a live attempt's rank) -> Stopping (told to stop, or about to) -> Free
//
// A cordoned worker (`penstock drain`) gets no new ranks. Cordons go by name, and outlive the worker's process.
//
// Stopping ends when ExecutorStopped arrives, when the executor is known to be dead, when a newer incarnation
// registers (executors die with their daemon), or after Options::stopping_limit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/core/options.h"
#include "coordinator/core/probe.h"
#include "coordinator/core/records.h"
#include "coordinator/core/session.h"

namespace penstock::coordinator {

enum class DeviceUse : uint8_t { Free, Held, Stopping };

struct Device {
  DeviceSlot slot{};
  DeviceUse use = DeviceUse::Free;
  // Of the rank that holds it or stops; meaningless when Free.
  AttemptKey attempt{};
  RankIndex rank{};
  int64_t executor_pid = 0;
  TimePoint stopping_since{};
  TimePoint next_abort{};  // when it is told to stop (again)
  std::string stop_reason{};

  bool holds(const AttemptKey& key, RankIndex which) const {
    return use != DeviceUse::Free && attempt == key && rank == which;
  }
};

struct Worker {
  std::string name{};
  std::string host{};
  std::string principal{};
  int64_t incarnation = 0;
  int64_t pid = 0;
  std::string metrics_address{};
  std::string data_address{};
  std::vector<Device> devices{};

  SessionId session = 0;  // 0: lost
  TimePoint heard{};      // last message, or loss
  bool draining = false;
  std::string reason{};  // why it drains or is lost
  int64_t since_unix_ms = 0;

  bool is_open() const { return session != 0; }
};

// Where a rank may still run although this process has not seen its worker yet: read back from the store.
struct Leftover {
  AttemptKey attempt{};  // with the worker's incarnation
  RankIndex rank{};
  int device = 0;
  int64_t order = 0;  // of its attempt: on one device only the newest can be alive
  TimePoint since{};
};

struct Fleet {
  std::map<std::string, Worker> workers{};
  std::unordered_map<SessionId, std::string> sessions{};  // open ones
  std::multimap<std::string, Leftover> leftovers{};       // by worker
  std::map<std::string, Cordon> cordons{};                // by worker, which may not be known now

  Worker* find(const std::string& name);
  Worker* of_session(SessionId session);
  const Worker* of_session(SessionId session) const;
  // Whether new ranks may be placed on its free devices.
  bool takes_work(const Worker& worker) const {
    return worker.is_open() && !worker.draining && !cordons.contains(worker.name);
  }
};

// Refuses malformed registrations: InvalidArgument with field, expected and found.
Status check_registration(const Registration& registration, const Options& options);

// Whether the registration may replace what the fleet knows of that name. Aborted: its incarnation is older.
// ResourceExhausted: the fleet is full.
Status can_register(const Fleet& fleet, const Registration& registration, const Options& options);

// A rank whose executor is known to be gone.
struct Gone {
  AttemptKey attempt{};
  RankIndex rank{};
};

// Adds the worker or its new incarnation; the name must have no open session. Devices whose executor may have
// survived (the same incarnation came back, or a leftover matches) are Stopping and due for an abort at once.
// Returns the ranks that cannot have survived.
std::vector<Gone> register_worker(Fleet& fleet, SessionId session, const Registration& registration,
                                  TimePoint time, int64_t unix_ms);

// Ends the worker's session. Its devices keep what they held, so that the same incarnation can come back to
// it.
void lose_worker(Fleet& fleet, Worker& worker, const std::string& reason, TimePoint time, int64_t unix_ms);

// Open workers that have been silent for all their leases.
std::vector<std::string> expired_leases(const Fleet& fleet, TimePoint time, const Options& options);

// Forgets workers lost long ago, and executors that cannot live any more: stopping, or without coordinator,
// for too long. Returns these.
std::vector<Gone> forget_old(Fleet& fleet, TimePoint time, const Options& options);

// The device that the rank holds or stops on; null when there is none.
Device* device_of(Worker& worker, const AttemptKey& attempt, RankIndex rank);
void hold(Device& device, const AttemptKey& attempt, RankIndex rank);
void stop(Device& device, const std::string& reason, TimePoint time, TimePoint next_abort);
void free_device(Device& device);

Census census_of(const Fleet& fleet);  // fills workers and devices only

// One view a device slot, by name and device.
std::vector<WorkerView> worker_views(const Fleet& fleet);
// Those of one worker; none where it is not known.
std::vector<WorkerView> views_of_worker(const Fleet& fleet, const std::string& name);

std::string device_name(const Device& device);  // "cpu:0"

}  // namespace penstock::coordinator
