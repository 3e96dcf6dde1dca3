// Everything that the coordinator knows, as plain data. core.h says how it changes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <variant>

#include "coordinator/core/broker/broker.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/options.h"
#include "coordinator/core/store_order/store_order.h"

namespace penstock::coordinator {

// An answer that promises durability. answers.cc.
struct PendingAnswer {
  Ticket ticket = 0;
  std::string name{};  // of the job or worker
  std::variant<AnswerSubmit, AnswerControl, AnswerWorker> answer;
  TimePoint since{};
};

// An attempt whose ranks are being told, a few in each turn.
struct Assigning {
  std::string job{};
  int64_t order = 0;  // of the attempt
};

struct State {
  Options options;
  std::map<std::string, Job> jobs{};
  std::deque<std::string> queue{};  // Queued and Placing jobs, oldest first
  std::deque<std::string> ended{};  // oldest end first
  Fleet fleet;
  Broker broker;
  StoreOrder store;
  Status store_health{};  // why saves fail now
  std::deque<PendingAnswer> answers{};
  std::deque<Assigning> assigning{};
  std::map<std::string, std::string> names_by_request{};  // request id -> job
  int64_t next_sequence = 1;                              // of jobs, by submission
  int64_t next_placement = 1;                             // of attempts of all jobs
  bool placing_due = false;  // something has changed since the queue was looked through...
  // ...and this is when it is looked through again: a storm of changes costs one look.
  TimePoint place_next{};
  std::array<int64_t, kRefusals> refused{};  // by Refusal

  Job* find_job(const std::string& name) {
    auto found = jobs.find(name);
    return found == jobs.end() ? nullptr : &found->second;
  }
};

}  // namespace penstock::coordinator
