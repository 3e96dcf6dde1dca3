// The slots of one stage, layer and kind of payload: rows of the layer's experts that a backward has still to read.
//
// As many as the lowered program has alive at once (plan/schedule/payload_slots.h), allocated before the first step. The
// saved forward value owns the lease of its slot (slot_ledger.h), and the last consumer of the backward ends it: a later
// forward that took the slot before would leave a gradient that is finite and wrong. Debug builds fill released slots
// with NaN and guard both ends of every slot. Thread: the interpreter's.
#pragma once

#include <memory>

#include "kernels/device/slab.h"
#include "worker/buffers/memory_checks.h"
#include "worker/buffers/slot_ledger.h"

namespace penstock::worker {

using PayloadLease = SlotLease;

enum class PayloadKind : uint8_t { Inputs, OutputGradients };
const char* name_of(PayloadKind kind);  // "inputs", "output_gradients"

struct PayloadPoolShape {
  StageIndex stage;
  LayerIndex layer;
  PayloadKind kind = PayloadKind::Inputs;
  int slots = 0;
  int64_t slot_bytes = 0;  // a multiple of 64
  bool checks_memory = kChecksMemory;
};

class PayloadPool {
 public:
  // ResourceExhausted: no memory, with what it was for. `clock` outlives the pool.
  static StatusOr<std::unique_ptr<PayloadPool>> create(const PayloadPoolShape& shape, const Clock& clock);

  // Takes the lowest free slot. ResourceExhausted when all are held, naming the holder of the oldest lease and its age.
  StatusOr<PayloadLease> acquire(MicrobatchIndex holder) { return ledger_.take_lowest(holder); }

  StageIndex stage() const { return ledger_.use().stage; }
  LayerIndex layer() const { return ledger_.use().layer; }
  PayloadKind kind() const { return shape_.kind; }
  int slots() const { return ledger_.capacity(); }
  int held() const { return ledger_.held(); }
  int held_peak() const { return ledger_.held_peak(); }
  // The longest that any lease has been held of those that ended since the last call, or have not ended.
  Duration take_longest_lease() { return ledger_.take_longest_lease(); }
  // Of the slots; guards are not counted.
  int64_t bytes() const { return shape_.slots * shape_.slot_bytes; }

 private:
  friend class LeaseRuleOff;  // testing/lease_rule_off.h, of tests
  PayloadPool(const PayloadPoolShape& shape, kernels::Slab slab, const Clock& clock);

  PayloadPoolShape shape_;
  kernels::Slab slab_;
  SlotLedger ledger_;
};

}  // namespace penstock::worker
