#include "coordinator/core/placement/placement.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/text.h"

namespace penstock::coordinator {
namespace {

// "a, b, c and d" of four, "a, b, c and 2 more" of five: the first of `count` things. One that would only be counted is
// named instead.
std::string listed(std::span<const std::string> first, size_t count) {
  if (count <= 3) return join(first.first(count));
  if (count == 4) return fmt::format("{} and {}", join(first.first(3)), first[3]);
  return fmt::format("{} and {} more", join(first.first(3)), count - 3);
}

std::string obstacle(const Worker& worker, const Device& device) {
  const char* verb = device.use == DeviceUse::Held ? "runs" : "stops";
  return fmt::format("{} {} {} {} rank {}", worker.name, device_name(device), verb, device.attempt.job,
                     device.rank.value);
}

// How many of a host's `free` devices to take behind `placed` ranks: first those that the last group lacks, then whole
// groups. A group is cut only where the host, which has most, is too small for any.
int whole_groups(int placed, int free, int group) {
  const int lacking = (group - placed % group) % group;
  if (free <= lacking) return free;
  const int whole = lacking + (free - lacking) / group * group;
  return whole == 0 ? free : whole;
}

}  // namespace

Placer::Placer(const Fleet& fleet, KeptSeats kept) : fleet_(fleet), kept_(std::move(kept)) {
  for (const auto& [job, seats] : kept_) {
    for (const Seat& seat : seats) kept_for_[{seat.worker, seat.device}] = job;
  }
}

Placer::Supply Placer::survey(const std::string& kind) const {
  Supply supply;
  std::map<std::string, Host> hosts;
  for (const auto& [name, worker] : fleet_.workers) {
    const bool takes_work = fleet_.takes_work(worker);
    bool has_kind = false;
    for (const Device& device : worker.devices) {
      if (device.slot.kind != kind) continue;
      has_kind = true;
      if (!takes_work) continue;
      ++supply.usable;
      ++hosts[worker.host].usable;
      if (device.use != DeviceUse::Free) {
        supply.obstacles.add([&] { return obstacle(worker, device); });
        continue;
      }
      if (const auto kept = kept_for_.find({name, device.slot.index}); kept != kept_for_.end()) {
        supply.obstacles.add(
            [&] { return fmt::format("{} {} is kept for {}", name, device_name(device), kept->second); });
        continue;
      }
      ++supply.free;
      hosts[worker.host].free.push_back({name, device.slot.index});
    }
    if (has_kind && !takes_work)
      supply.obstacles.add([&] {
        return worker.name + (!worker.is_open() ? " lost" : worker.draining ? " draining" : " drained");
      });
  }
  for (auto& [id, host] : hosts) {
    host.id = id;
    supply.hosts.push_back(std::move(host));
  }
  return supply;
}

// The smallest host that suffices, else the largest.
Placer::Host& Placer::best_of(std::vector<Host>& hosts, int ranks) {
  const auto wanted = static_cast<size_t>(ranks);
  Host* best = &hosts.front();
  for (Host& host : hosts) {
    const bool fits = host.free.size() >= wanted;
    const bool best_fits = best->free.size() >= wanted;
    const bool better =
        fits && best_fits ? host.free.size() < best->free.size() : host.free.size() > best->free.size();
    if (better) best = &host;
  }
  return *best;
}

std::vector<Seat> Placer::choose(Supply& supply, const PlacementRequest& request) {
  std::vector<Seat> seats;
  while (static_cast<int>(seats.size()) < request.ranks) {
    const int placed = static_cast<int>(seats.size());
    const int missing = request.ranks - placed;
    std::vector<Seat>& free = best_of(supply.hosts, missing).free;
    const int taken = whole_groups(placed, std::min(static_cast<int>(free.size()), missing), request.group);
    const auto end = free.begin() + taken;
    seats.insert(seats.end(), free.begin(), end);
    free.erase(free.begin(), end);
  }
  supply.free -= request.ranks;
  return seats;
}

// Where the groups came to stand; nothing for ranks without groups.
std::string Placer::groups_text(const std::vector<Seat>& seats, int group) const {
  if (group == 1) return "";
  const auto host_of = [&](size_t rank) { return fleet_.workers.at(seats[rank].worker).host; };
  const auto size = static_cast<size_t>(group);
  const size_t groups = seats.size() / size;
  size_t cut = 0;
  for (size_t first = 0; first < seats.size(); first += size) {
    bool is_whole = true;
    for (size_t rank = first + 1; rank < first + size; ++rank) is_whole &= host_of(rank) == host_of(first);
    cut += !is_whole;
  }
  const std::string why = fmt::format(": none had {} devices left", group);
  if (groups == 1)
    return fmt::format("; its expert group of {} ranks is on {}", group,
                       cut == 0 ? "one host" : "several hosts" + why);
  if (cut == 0)
    return fmt::format("; each of its {} expert groups of {} ranks is on one host", groups, group);
  return fmt::format("; {} of its {} expert groups of {} ranks {} on several hosts{}", cut, groups, group,
                     cut == 1 ? "is" : "are", why);
}

bool Placer::suffices(const Supply& supply, const PlacementRequest& request) {
  const auto wanted = static_cast<size_t>(request.ranks);
  if (!request.one_host) return supply.free >= request.ranks;
  return std::any_of(supply.hosts.begin(), supply.hosts.end(),
                     [&](const Host& host) { return host.free.size() >= wanted; });
}

bool Placer::fits_fleet(const Supply& supply, const PlacementRequest& request) {
  if (!request.one_host) return supply.usable >= request.ranks;
  return std::any_of(supply.hosts.begin(), supply.hosts.end(),
                     [&](const Host& host) { return host.usable >= request.ranks; });
}

std::string Placer::waits_reason(Supply& supply, const PlacementRequest& request) {
  int free = supply.free;
  std::string one_host, where;
  if (request.one_host) {
    one_host = fmt::format(" on one host ({})", request.one_host_reason);
    free = 0;
    if (!supply.hosts.empty()) {
      const Host& best = best_of(supply.hosts, request.ranks);
      free = static_cast<int>(best.free.size());
      where = " on " + best.id;
    }
  }
  const int missing = request.ranks - free;
  const std::string reason =
      fmt::format("waits for {} more {} device{}{}: {} needed, {} free{}", missing, request.kind,
                  missing == 1 ? "" : "s", one_host, request.ranks, free, where);
  const Obstacles& obstacles = supply.obstacles;
  if (obstacles.count == 0) return reason;
  return reason + fmt::format(" ({})", listed(obstacles.shown, obstacles.count));
}

std::string Placer::placed_text(const std::vector<Seat>& seats, int group) const {
  std::vector<std::string> names;
  for (const Seat& seat : seats) {
    if (names.empty() || names.back() != seat.worker) names.push_back(seat.worker);
  }
  return "placed on " + listed(names, names.size()) + groups_text(seats, group);
}

Placement Placer::place(const PlacementRequest& request) {
  if (const auto kept = kept_.find(request.job); kept != kept_.end())
    return {.seats = kept->second, .reason = placed_text(kept->second, request.group) + ", as before"};
  auto found = supplies_.find(request.kind);
  if (found == supplies_.end()) found = supplies_.emplace(request.kind, survey(request.kind)).first;
  Supply& supply = found->second;
  Placement placement;
  if (!suffices(supply, request)) {
    placement.fits_fleet = fits_fleet(supply, request);
    placement.reason = waits_reason(supply, request);
    return placement;
  }
  placement.seats = choose(supply, request);
  for (size_t r = 0; r < placement.seats.size(); ++r) {
    const Seat& seat = placement.seats[r];
    supply.obstacles.add([&] {
      return fmt::format("{} {}:{} runs {} rank {}", seat.worker, request.kind, seat.device, request.job, r);
    });
  }
  placement.reason = placed_text(placement.seats, request.group);
  return placement;
}

Placement place(const Fleet& fleet, const PlacementRequest& request) {
  return Placer(fleet).place(request);
}

}  // namespace penstock::coordinator
