#include "coordinator/core/fleet/fleet.h"

#include <algorithm>
#include <set>
#include <utility>

namespace penstock::coordinator {
namespace {

bool is_plain_name(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > 0x20 && c != 0x7f; });
}

// Executors of an incarnation may have outlived the session in which they were started; an older
// incarnation's died with it.
void adopt_survivors(Worker& fresh, const Worker& before, TimePoint time, std::vector<Gone>& gone) {
  for (const Device& old : before.devices) {
    if (old.use == DeviceUse::Free) continue;
    auto same = std::find_if(fresh.devices.begin(), fresh.devices.end(),
                             [&](const Device& device) { return device.slot.index == old.slot.index; });
    if (before.incarnation != fresh.incarnation || same == fresh.devices.end()) {
      gone.push_back({old.attempt, old.rank});
      continue;
    }
    hold(*same, old.attempt, old.rank);
    same->executor_pid = old.executor_pid;
    stop(*same, "its session ended", time, time);
  }
}

void adopt_leftovers(Fleet& fleet, Worker& fresh, TimePoint time, std::vector<Gone>& gone) {
  const auto [begin, end] = fleet.leftovers.equal_range(fresh.name);
  std::vector<Leftover> leftovers;
  for (auto it = begin; it != end; ++it) leftovers.push_back(it->second);
  fleet.leftovers.erase(begin, end);
  // Newest first: it was placed because the older ones on its device were gone.
  std::sort(leftovers.begin(), leftovers.end(),
            [](const Leftover& a, const Leftover& b) { return a.order > b.order; });
  for (const Leftover& leftover : leftovers) {
    auto same = std::find_if(fresh.devices.begin(), fresh.devices.end(),
                             [&](const Device& device) { return device.slot.index == leftover.device; });
    const bool may_live = leftover.attempt.incarnation == fresh.incarnation && same != fresh.devices.end() &&
                          same->use == DeviceUse::Free;
    if (!may_live) {
      gone.push_back({leftover.attempt, leftover.rank});
      continue;
    }
    hold(*same, leftover.attempt, leftover.rank);
    stop(*same, "the coordinator was restarted", time, time);
  }
}

// Frees what must have stopped by now: told to stop for too long, or cut off for longer than executors go on
// alone.
void free_the_dead(Worker& worker, TimePoint time, const Options& options, std::vector<Gone>& gone) {
  for (Device& device : worker.devices) {
    if (device.use == DeviceUse::Free) continue;
    const bool stopping = device.use == DeviceUse::Stopping;
    if (worker.is_open() && !stopping) continue;
    const TimePoint since = worker.is_open() ? device.stopping_since : worker.heard;
    if (time - since < options.stopping_limit) continue;
    gone.push_back({device.attempt, device.rank});
    free_device(device);
  }
}

void give_up(const Worker& worker, std::vector<Gone>& gone) {
  for (const Device& device : worker.devices) {
    if (device.use != DeviceUse::Free) gone.push_back({device.attempt, device.rank});
  }
}

std::string state_of(const Fleet& fleet, const Worker& worker, const Device& device) {
  if (!worker.is_open()) return "lost";
  if (worker.draining) return "draining";
  if (!fleet.takes_work(worker)) return device.use == DeviceUse::Free ? "drained" : "draining";
  return device.use == DeviceUse::Free ? "free" : "assigned";
}

}  // namespace

Worker* Fleet::find(const std::string& name) {
  auto found = workers.find(name);
  return found == workers.end() ? nullptr : &found->second;
}

Worker* Fleet::of_session(SessionId session) {
  auto found = sessions.find(session);
  return found == sessions.end() ? nullptr : find(found->second);
}

const Worker* Fleet::of_session(SessionId session) const {
  return const_cast<Fleet*>(this)->of_session(session);
}

Status check_registration(const Registration& registration, const Options& options) {
  const std::string& name = registration.worker;
  if (name.empty() || name.size() > options.worker_name_bytes || !is_plain_name(name)) {
    return invalid_argument(
        "register: worker: expected a name of 1 to {} printable characters without spaces, found {} bytes",
        options.worker_name_bytes, name.size());
  }
  if (registration.incarnation <= 0) {
    return invalid_argument("register: worker {}: incarnation: expected a positive number, found {}", name,
                            registration.incarnation);
  }
  if (registration.devices.empty() || registration.devices.size() > options.devices_per_worker) {
    return invalid_argument("register: worker {}: devices: expected 1 to {}, found {}", name,
                            options.devices_per_worker, registration.devices.size());
  }
  std::set<int> indexes;
  for (const DeviceSlot& slot : registration.devices) {
    if (slot.kind.empty() || slot.index < 0) {
      return invalid_argument(
          "register: worker {}: device: expected a kind and an index from 0, found \"{}\":{}", name,
          slot.kind, slot.index);
    }
    if (!indexes.insert(slot.index).second) {
      return invalid_argument("register: worker {}: device {}: expected once, found twice", name, slot.index);
    }
  }
  return ok_status();
}

Status can_register(const Fleet& fleet, const Registration& registration, const Options& options) {
  auto known = fleet.workers.find(registration.worker);
  if (known == fleet.workers.end()) {
    if (fleet.workers.size() < options.workers) return ok_status();
    const bool one_is_lost = std::any_of(fleet.workers.begin(), fleet.workers.end(),
                                         [](const auto& entry) { return !entry.second.is_open(); });
    if (one_is_lost) return ok_status();
    return resource_exhausted("register: worker {}: the fleet holds at most {} workers", registration.worker,
                              options.workers);
  }
  const Worker& worker = known->second;
  if (registration.incarnation >= worker.incarnation) return ok_status();
  return aborted(
      "register: worker {}: incarnation {} expected or greater, found {}; a newer process (pid {}) has "
      "this name",
      worker.name, worker.incarnation, registration.incarnation, worker.pid);
}

std::vector<Gone> register_worker(Fleet& fleet, SessionId session, const Registration& registration,
                                  TimePoint time, int64_t unix_ms) {
  std::vector<Gone> gone;
  Worker fresh;
  fresh.name = registration.worker;
  fresh.host = registration.host_id;
  fresh.principal = registration.principal;
  fresh.incarnation = registration.incarnation;
  fresh.pid = registration.pid;
  fresh.metrics_address = registration.metrics_address;
  fresh.data_address = registration.data_address;
  for (const DeviceSlot& slot : registration.devices) fresh.devices.push_back(Device{.slot = slot});
  std::sort(fresh.devices.begin(), fresh.devices.end(),
            [](const Device& a, const Device& b) { return a.slot.index < b.slot.index; });
  fresh.session = session;
  fresh.heard = time;
  fresh.since_unix_ms = unix_ms;

  if (const Worker* before = fleet.find(fresh.name)) adopt_survivors(fresh, *before, time, gone);
  adopt_leftovers(fleet, fresh, time, gone);
  fleet.sessions[session] = fresh.name;
  fleet.workers.insert_or_assign(fresh.name, std::move(fresh));
  return gone;
}

void lose_worker(Fleet& fleet, Worker& worker, const std::string& reason, TimePoint time, int64_t unix_ms) {
  fleet.sessions.erase(worker.session);
  worker.session = 0;
  worker.heard = time;
  worker.reason = reason;
  worker.since_unix_ms = unix_ms;
}

std::vector<std::string> expired_leases(const Fleet& fleet, TimePoint time, const Options& options) {
  std::vector<std::string> names;
  for (const auto& [name, worker] : fleet.workers) {
    if (worker.is_open() && time - worker.heard >= options.lease * options.leases_missed)
      names.push_back(name);
  }
  return names;
}

std::vector<Gone> forget_old(Fleet& fleet, TimePoint time, const Options& options) {
  std::vector<Gone> gone;
  for (auto& [name, worker] : fleet.workers) free_the_dead(worker, time, options, gone);
  std::erase_if(fleet.leftovers, [&](const auto& entry) {
    if (time - entry.second.since < options.stopping_limit) return false;
    gone.push_back({entry.second.attempt, entry.second.rank});
    return true;
  });
  std::erase_if(fleet.workers, [&](const auto& entry) {
    const Worker& worker = entry.second;
    if (worker.is_open() || time - worker.heard < options.lost_worker_kept) return false;
    give_up(worker, gone);
    return true;
  });
  while (fleet.workers.size() > options.workers) {
    auto oldest = fleet.workers.end();
    for (auto it = fleet.workers.begin(); it != fleet.workers.end(); ++it) {
      if (it->second.is_open()) continue;
      if (oldest == fleet.workers.end() || it->second.heard < oldest->second.heard) oldest = it;
    }
    if (oldest == fleet.workers.end()) break;
    give_up(oldest->second, gone);
    fleet.workers.erase(oldest);
  }
  return gone;
}

Device* device_of(Worker& worker, const AttemptKey& attempt, RankIndex rank) {
  for (Device& device : worker.devices) {
    if (device.holds(attempt, rank)) return &device;
  }
  return nullptr;
}

void hold(Device& device, const AttemptKey& attempt, RankIndex rank) {
  device.use = DeviceUse::Held;
  device.attempt = attempt;
  device.rank = rank;
  device.executor_pid = 0;
}

void stop(Device& device, const std::string& reason, TimePoint time, TimePoint next_abort) {
  device.use = DeviceUse::Stopping;
  device.stopping_since = time;
  device.next_abort = next_abort;
  device.stop_reason = reason;
}

void free_device(Device& device) {
  device = Device{.slot = std::move(device.slot)};
}

Census census_of(const Fleet& fleet) {
  Census census;
  for (const auto& [name, worker] : fleet.workers) {
    if (!worker.is_open()) {
      ++census.workers_lost;
      continue;
    }
    if (!fleet.takes_work(worker)) {
      ++census.workers_draining;
      continue;
    }
    const auto busy = std::count_if(worker.devices.begin(), worker.devices.end(),
                                    [](const Device& device) { return device.use != DeviceUse::Free; });
    ++(busy == 0 ? census.workers_free : census.workers_assigned);
    census.devices_busy += busy;
    census.devices_free += static_cast<int64_t>(worker.devices.size()) - busy;
  }
  return census;
}

std::string device_name(const Device& device) {
  return fmt::format("{}:{}", device.slot.kind, device.slot.index);
}

std::vector<WorkerView> views_of_worker(const Fleet& fleet, const std::string& name) {
  std::vector<WorkerView> views;
  const auto found = fleet.workers.find(name);
  if (found == fleet.workers.end()) return views;
  const Worker& worker = found->second;
  const auto cordon = fleet.cordons.find(name);
  for (const Device& device : worker.devices) {
    WorkerView view{.name = name,
                    .state = state_of(fleet, worker, device),
                    .pid = worker.pid,
                    .device = device_name(device),
                    .host = worker.host,
                    .incarnation = worker.incarnation,
                    .since_unix_ms = worker.since_unix_ms,
                    .metrics_address = worker.metrics_address,
                    .drained_by = cordon == fleet.cordons.end() ? "" : cordon->second.by};
    if (worker.is_open() && device.use != DeviceUse::Free) {
      view.executor_pid = device.executor_pid;
      view.job = device.attempt.job;
      view.rank = device.rank;
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<WorkerView> worker_views(const Fleet& fleet) {
  std::vector<WorkerView> views;
  for (const auto& [name, worker] : fleet.workers) {
    for (WorkerView& view : views_of_worker(fleet, name)) views.push_back(std::move(view));
  }
  return views;
}

}  // namespace penstock::coordinator
