// Switches the rule off that a payload's slot stays taken until its backward has read it: what a pool without leases
// does, silently. For the test that shows why there are leases; nothing but a test can include it.
//
//     end_all      before a forward: slots are free, as if every lease had ended with the forward that took it
//     resume_all   before a backward: it reads that slot all the same, whatever stands there by now
#pragma once

#include "worker/buffers/payload_pool.h"

namespace penstock::worker {

class LeaseRuleOff {
 public:
  static void end_all(PayloadPool& pool) { mark_all(pool.ledger_, false, 0); }
  static void resume_all(PayloadPool& pool) { mark_all(pool.ledger_, true, 1); }

 private:
  // Every lease is the first one of its slot.
  static void mark_all(SlotLedger& ledger, bool held, uint64_t generation) {
    for (SlotLedger::Slot& slot : ledger.slots_) {
      slot.held = held;
      slot.generation = generation;
    }
    ledger.held_ = held ? ledger.capacity() : 0;
  }
};

}  // namespace penstock::worker
