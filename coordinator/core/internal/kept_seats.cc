#include "coordinator/core/internal/kept_seats.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace penstock::coordinator {
namespace {

bool may_come(const Fleet& fleet, const Job& job, const RankPlacement& rank) {
  const auto [begin, end] = fleet.leftovers.equal_range(rank.worker);
  return !fleet.cordons.contains(rank.worker) && std::any_of(begin, end, [&](const auto& leftover) {
    return leftover.second.attempt.job == job.name();
  });
}

bool can_be_had(const Fleet& fleet, const Job& job, const RankPlacement& rank) {
  const auto found = fleet.workers.find(rank.worker);
  if (found == fleet.workers.end()) return may_come(fleet, job, rank);
  const Worker& worker = found->second;
  if (worker.incarnation != rank.incarnation || !fleet.takes_work(worker)) return false;
  return std::any_of(worker.devices.begin(), worker.devices.end(), [&](const Device& device) {
    const bool is_its_own = device.attempt.job == job.name() && job.executors_left > 0;
    return device.slot.index == rank.device && (device.use == DeviceUse::Free || is_its_own);
  });
}

std::vector<const Job*> movers(const State& state) {
  std::vector<const Job*> jobs;
  for (const auto& [name, job] : state.jobs) {
    if (job.moving_since && job.live()) jobs.push_back(&job);
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const Job* a, const Job* b) { return a->last_order > b->last_order; });
  return jobs;
}

}  // namespace

KeptSeats kept_seats(const State& state) {
  KeptSeats kept;
  std::set<std::pair<std::string, int>> taken;  // worker and device
  for (const Job* job : movers(state)) {
    const bool all = std::all_of(job->placed.begin(), job->placed.end(), [&](const RankPlacement& rank) {
      return can_be_had(state.fleet, *job, rank) && !taken.contains({rank.worker, rank.device});
    });
    if (!all || job->placed.empty()) continue;
    std::vector<Seat>& seats = kept[job->name()];
    for (const RankPlacement& rank : job->placed) {
      seats.push_back({rank.worker, rank.device});
      taken.insert({rank.worker, rank.device});
    }
  }
  return kept;
}

}  // namespace penstock::coordinator
