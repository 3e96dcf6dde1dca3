// The activation slots of one stage: H_s of them, fixed before the first step, handed out under leases.
//
// A lease is move-only, carries a generation and gives its slot back when destroyed or released. The saved
// forward value owns it until the backward's last consumer has finished. Errors: exhaustion names the holder
// of the oldest lease; a second release and a use after release stop the process (programmer's mistakes).
// Debug builds fill released slots with NaN. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/device/slab.h"

namespace penstock::worker {

class ActivationPool;

class ActivationLease {
 public:
  ActivationLease() = default;
  ActivationLease(ActivationLease&& other) noexcept;
  ActivationLease& operator=(ActivationLease&& other) noexcept;
  ~ActivationLease();

  bool held() const { return pool_ != nullptr; }
  int slot() const;
  uint64_t generation() const { return generation_; }
  void* data() const;  // first byte of the slot; checks the generation
  void release();

 private:
  friend class ActivationPool;
  ActivationLease(ActivationPool* pool, int slot, uint64_t generation)
      : pool_(pool), slot_(slot), generation_(generation) {}
  ActivationPool* pool_ = nullptr;
  int slot_ = -1;
  uint64_t generation_ = 0;
};

class ActivationPool {
 public:
  // `slab` holds slots x slot_bytes and outlives the pool. Slots of no bytes need none.
  ActivationPool(StageIndex stage, int slots, int64_t slot_bytes, kernels::SlabView slab);
  ~ActivationPool();

  // Takes the slot that the lowered program names. ResourceExhausted when it is held, naming the holder.
  StatusOr<ActivationLease> acquire(int slot, MicrobatchIndex holder);

  StageIndex stage() const { return stage_; }
  int capacity() const { return static_cast<int>(slots_.size()); }
  int held() const { return held_; }
  int held_peak() const { return held_peak_; }

 private:
  friend class ActivationLease;
  struct Slot {
    bool held = false;
    uint64_t generation = 0;
    uint64_t acquired_at = 0;  // count of acquisitions, for "oldest"
    MicrobatchIndex holder;
  };
  void release(int slot, uint64_t generation);
  void* data(int slot, uint64_t generation) const;

  StageIndex stage_;
  int64_t slot_bytes_;
  kernels::SlabView slab_;
  std::vector<Slot> slots_;
  uint64_t acquisitions_ = 0;
  int held_ = 0;
  int held_peak_ = 0;
};

}  // namespace penstock::worker
