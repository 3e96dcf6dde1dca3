// Everything that the coordinator knows, as plain data. core.h says how it changes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "coordinator/core/broker/broker.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/options.h"
#include "coordinator/core/store_order/store_order.h"

namespace penstock::coordinator {

struct State {
  Options options;
  std::map<std::string, Job> jobs{};
  std::deque<std::string> queue{};  // Queued and Placing jobs, oldest first
  std::deque<std::string> ended{};  // oldest end first
  Fleet fleet;
  Broker broker;
  StoreOrder store;
  std::map<std::string, std::string> names_by_request{};  // request id -> job
  int64_t next_sequence = 1;                              // of jobs, by submission
  int64_t next_placement = 1;                             // of attempts of all jobs
  bool placing_due = false;  // something has changed since the queue was looked through...
  TimePoint
      place_next{};  // ...and this is when it is looked through again: a storm of changes costs one look
  std::array<int64_t, kRefusals> refused{};  // by Refusal

  Job* find_job(const std::string& name) {
    auto found = jobs.find(name);
    return found == jobs.end() ? nullptr : &found->second;
  }
};

}  // namespace penstock::coordinator
