// Messages for the coordinator that wait for a session, oldest first, and survive the end of one.
//
// Bounds: kMostReports messages, of which at most kMostLogs may be log lines; beyond that log lines are
// dropped and counted in the rank's next batch, and of other reports the oldest. Thread: the agent's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/v1/workers.pb.h"

namespace penstock::worker {

class Outbox {
 public:
  static constexpr size_t kMostReports = 65536;
  static constexpr size_t kMostLogs = 256;

  void push(v1::WorkerMessage message);
  // Puts back what a session did not write; heartbeats and registrations meant that session only.
  void put_back(std::vector<v1::WorkerMessage> unsent);
  bool empty() const { return messages_.empty(); }
  const v1::WorkerMessage& front() const { return messages_.front(); }
  void pop();
  int64_t reports_lost() const { return lost_; }

 private:
  void bound();

  std::deque<v1::WorkerMessage> messages_;
  size_t logs_ = 0;
  std::map<std::pair<std::string, int32_t>, int64_t> dropped_lines_;  // by (job, rank)
  int64_t lost_ = 0;
};

}  // namespace penstock::worker
