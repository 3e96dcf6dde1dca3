// Devices that are kept for jobs which move of their own accord: another machine may compute other bits, and another job may
// wait for them.
#pragma once

#include "coordinator/core/placement/placement.h"
#include "coordinator/core/state.h"

namespace penstock::coordinator {

inline constexpr const char* kRebalancer = "rebalancer";  // who moved a job, in its record

// Whether the record is that of a job between two attempts, of which a move ended the first.
inline bool moves_by_itself(const JobStatus& status) {
  return status.state == JobState::Recovering && status.by == kRebalancer;
}

// Where each such job was, if all of it can be had again; else it is placed as any other. A worker that a restarted coordinator
// has not seen yet may come, as long as its executor may live. A device that two jobs had is that of the later one.
KeptSeats kept_seats(const State& state);

}  // namespace penstock::coordinator
