#include "coordinator/core/placement/placement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"

namespace penstock::coordinator {
namespace {

struct Host {
  std::string id;
  std::vector<Seat> free;  // by worker and device
};

struct Supply {
  std::vector<Host> hosts;  // with at least one free device
  int free = 0;
  int usable = 0;                      // free or busy, on workers that take work
  std::vector<std::string> obstacles;  // why the others are not free
};

std::string obstacle(const Worker& worker, const Device& device) {
  const char* verb = device.use == DeviceUse::Held ? "runs" : "stops";
  return fmt::format("{} {} {} {} rank {}", worker.name, device_name(device), verb, device.attempt.job,
                     device.rank.value);
}

Supply survey(const Fleet& fleet, const std::string& kind) {
  Supply supply;
  std::map<std::string, Host> hosts;
  for (const auto& [name, worker] : fleet.workers) {
    const bool takes_work = worker.is_open() && !worker.draining;
    bool has_kind = false;
    for (const Device& device : worker.devices) {
      if (device.slot.kind != kind) continue;
      has_kind = true;
      if (!takes_work) continue;
      ++supply.usable;
      if (device.use != DeviceUse::Free) {
        supply.obstacles.push_back(obstacle(worker, device));
        continue;
      }
      ++supply.free;
      hosts[worker.host].free.push_back({name, device.slot.index});
    }
    if (has_kind && !takes_work)
      supply.obstacles.push_back(name + (worker.is_open() ? " draining" : " lost"));
  }
  for (auto& [id, host] : hosts) {
    host.id = id;
    supply.hosts.push_back(std::move(host));
  }
  return supply;
}

// The smallest host that suffices, or null.
Host* best_fit(std::vector<Host>& hosts, int ranks) {
  Host* best = nullptr;
  for (Host& host : hosts) {
    if (static_cast<int>(host.free.size()) < ranks) continue;
    if (!best || host.free.size() < best->free.size()) best = &host;
  }
  return best;
}

Host* largest(std::vector<Host>& hosts) {
  return &*std::max_element(hosts.begin(), hosts.end(),
                            [](const Host& a, const Host& b) { return a.free.size() < b.free.size(); });
}

std::vector<Seat> choose(std::vector<Host>& hosts, int ranks) {
  std::vector<Seat> seats;
  while (static_cast<int>(seats.size()) < ranks) {
    const int missing = ranks - static_cast<int>(seats.size());
    Host* host = best_fit(hosts, missing);
    if (!host) host = largest(hosts);
    const auto taken = std::min<size_t>(host->free.size(), static_cast<size_t>(missing));
    seats.insert(seats.end(), host->free.begin(), host->free.begin() + static_cast<std::ptrdiff_t>(taken));
    host->free.clear();
  }
  return seats;
}

}  // namespace

Placement place(const Fleet& fleet, const PlacementRequest& request) {
  Supply supply = survey(fleet, request.kind);
  Placement placement;
  if (supply.free < request.ranks) {
    const int missing = request.ranks - supply.free;
    placement.fits_fleet = supply.usable >= request.ranks;
    placement.reason = fmt::format("waits for {} more {} device{}: {} needed, {} free", missing, request.kind,
                                   missing == 1 ? "" : "s", request.ranks, supply.free);
    if (!supply.obstacles.empty()) placement.reason += fmt::format(" ({})", list_cut(supply.obstacles));
    return placement;
  }
  placement.seats = choose(supply.hosts, request.ranks);
  std::vector<std::string> names;
  for (const Seat& seat : placement.seats) names.push_back(seat.worker);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  placement.reason = fmt::format("placed on {}", list_cut(names));
  return placement;
}

}  // namespace penstock::coordinator
