// The activation slots of one stage: H_s of them, fixed before the first step, handed out under leases
// (slot_ledger.h), each the one that the lowered program names.
//
// The saved forward value owns its lease until the backward's last consumer has finished. Debug builds fill released
// slots with NaN. Thread: the interpreter's.
#pragma once

#include "kernels/device/slab.h"
#include "worker/buffers/slot_ledger.h"

namespace penstock::worker {

using ActivationLease = SlotLease;

class ActivationPool {
 public:
  // `slab` holds slots x slot_bytes and outlives the pool. Slots of no bytes need none.
  ActivationPool(StageIndex stage, int slots, int64_t slot_bytes, kernels::SlabView slab);

  // Takes the slot that the lowered program names. ResourceExhausted when it is held, naming the holder and that of the
  // oldest lease; InvalidArgument: there is no such slot.
  StatusOr<ActivationLease> acquire(int slot, MicrobatchIndex holder);

  StageIndex stage() const { return ledger_.use().stage; }
  int capacity() const { return ledger_.capacity(); }
  int held() const { return ledger_.held(); }
  int held_peak() const { return ledger_.held_peak(); }

 private:
  SlotLedger ledger_;
};

}  // namespace penstock::worker
