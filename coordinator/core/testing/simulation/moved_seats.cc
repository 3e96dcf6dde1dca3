#include "coordinator/core/testing/simulation/moved_seats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace penstock::coordinator::testing {
namespace {

bool moves(const JobStatus& status) {
  return status.state == JobState::Recovering && status.by == "rebalancer";
}

bool has_had(const StoredJob& job, const RankPlacement& seat) {
  return std::any_of(job.placed.begin(), job.placed.end(), [&](const RankPlacement& rank) {
    return rank.worker == seat.worker && rank.device == seat.device;
  });
}

// By what is durable another attempt has been there since.
bool was_taken(const std::vector<StoredJob>& jobs, const StoredJob& mover) {
  return std::any_of(jobs.begin(), jobs.end(), [&](const StoredJob& other) {
    return other.placed_order > mover.placed_order &&
           std::any_of(mover.placed.begin(), mover.placed.end(),
                       [&](const RankPlacement& seat) { return has_had(other, seat); });
  });
}

}  // namespace

void MovedSeats::check(const State& state, TimePoint now) {
  std::erase_if(moves_, [&](const auto& entry) { return is_over(state, entry.first, entry.second); });
  note_new(state);
  for (auto& [name, move] : moves_) {
    move.is_void |= is_void(state, move, now);
    if (!move.is_void) check_seats(state, name, move);
  }
}

int MovedSeats::crash(const Archive& durable, TimePoint now) {
  moves_.clear();
  const std::vector<StoredJob> jobs = durable.jobs();
  for (const StoredJob& job : jobs) {
    if (!moves(job.status) || job.placed.empty()) continue;
    moves_[job.definition.name] = {.sequence = job.definition.sequence,
                                   .seats = job.placed,
                                   .is_void = was_taken(jobs, job),
                                   .found = now};
  }
  return static_cast<int>(moves_.size());
}

void MovedSeats::note_new(const State& state) {
  for (const auto& [name, job] : state.jobs) {
    if (moves(job.status) && job.live() && !moves_.contains(name))
      moves_[name] = {.sequence = job.definition.sequence, .seats = job.placed};
  }
}

bool MovedSeats::is_over(const State& state, const std::string& name, const Move& move) {
  const auto found = state.jobs.find(name);
  if (found == state.jobs.end()) return true;
  const Job& job = found->second;
  return job.definition.sequence != move.sequence || !job.live() || job.attempt ||
         job.status.state == JobState::Paused;
}

bool MovedSeats::is_void(const State& state, const Move& move, TimePoint now) {
  const bool may_come = move.found && now - *move.found < state.options.stopping_limit;
  return std::any_of(move.seats.begin(), move.seats.end(), [&](const RankPlacement& seat) {
    const auto worker = state.fleet.workers.find(seat.worker);
    if (worker == state.fleet.workers.end()) return !may_come || state.fleet.cordons.contains(seat.worker);
    return worker->second.incarnation != seat.incarnation || !state.fleet.takes_work(worker->second);
  });
}

void MovedSeats::check_seats(const State& state, const std::string& name, const Move& move) {
  for (const RankPlacement& seat : move.seats) {
    const auto worker = state.fleet.workers.find(seat.worker);
    if (worker == state.fleet.workers.end()) continue;
    for (const Device& device : worker->second.devices) {
      if (device.slot.index != seat.device || device.use == DeviceUse::Free) continue;
      EXPECT_EQ(device.attempt.job, name) << name << " moves, and its device " << seat.device << " of "
                                          << seat.worker << " is given to another job";
    }
  }
}

}  // namespace penstock::coordinator::testing
