// The transfers that the Gloo endpoint has in flight: records that are reused, at most kTransfersInFlight. Guarded by the
// endpoint's mutex.
#pragma once

#include <gloo/rendezvous/context.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "worker/transport/endpoint.h"
#include "worker/transport/gloo/records.h"

namespace penstock::worker {

class TransferRecords {
 public:
  int in_flight() const { return in_flight_; }

  // The caller has seen that there is room. A record that carried the same memory before has its buffer still: a training
  // step allocates nothing here.
  GlooTransfer& take(::gloo::rendezvous::Context& context, Direction direction, int peer, void* data,
                     int64_t bytes);
  // Null: never taken, or given back.
  GlooTransfer* find(TransferId id);
  void give_back(GlooTransfer& transfer);

  // Wakes whoever waits for one of them.
  void abort_waits();
  void clear() { transfers_.clear(); }

 private:
  int choose(const void* data, int64_t bytes);

  std::deque<GlooTransfer> transfers_;
  std::vector<int> free_;
  int in_flight_ = 0;
  int64_t uses_ = 0;
};

}  // namespace penstock::worker
