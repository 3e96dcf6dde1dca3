// What must be durable before what: rules that wait for a save.
//
// The store makes transactions durable in the order of their tickets, so one number says how far it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/core/command.h"

namespace penstock::coordinator {

// What the core itself goes on with once a save is durable.
struct AdmitJob {
  std::string job;
};
struct StartAttempt {
  std::string job;
  int64_t attempt = 0;
};
struct EndJob {
  std::string job;
};
struct ProgressSaved {
  std::string job;
};
// What a checkpoint holds is on record.
struct StepsRecorded {
  std::string job;
  int64_t order = 0;  // of the attempt
  int64_t step = 0;
};
using Continuation = std::variant<AdmitJob, StartAttempt, EndJob, ProgressSaved, StepsRecorded>;

class StoreOrder {
 public:
  Ticket next_ticket() { return ++last_; }
  // `ticket` must be the one handed out last or an earlier one; order of calls is kept among equal tickets.
  void after(Ticket ticket, Continuation what);
  // What waited for the tickets up to `ticket`, in order. A ticket that was never handed out counts for the
  // last one.
  std::vector<Continuation> durable(Ticket ticket);

  bool is_durable(Ticket ticket) const { return ticket <= durable_; }
  Ticket last() const { return last_; }
  size_t pending() const { return static_cast<size_t>(last_ - durable_); }
  size_t held() const { return held_.size(); }

 private:
  Ticket last_ = 0;
  Ticket durable_ = 0;
  std::deque<std::pair<Ticket, Continuation>> held_;  // by ticket
};

}  // namespace penstock::coordinator
