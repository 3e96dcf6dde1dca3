#include "worker/buffers/activation_pool.h"

#include "base/check.h"
#include "worker/buffers/memory_checks.h"

namespace penstock::worker {

ActivationPool::ActivationPool(StageIndex stage, int slots, int64_t slot_bytes, kernels::SlabView slab)
    : ledger_({.stage = stage, .holds = "activation"}, slots,
              {.data = slab.data, .slot_bytes = slot_bytes, .poisons = kChecksMemory}) {
  PENSTOCK_CHECK_LE(slots * slot_bytes, slab.bytes);
}

StatusOr<ActivationLease> ActivationPool::acquire(int slot, MicrobatchIndex holder) {
  if (slot < 0 || slot >= capacity()) {
    return invalid_argument("stage {} has {} activation slots; microbatch {} asked for slot {}",
                            stage().value, capacity(), holder.value, slot);
  }
  return ledger_.take(slot, holder);
}

}  // namespace penstock::worker
