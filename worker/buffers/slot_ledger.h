// Who holds which of a pool's slots, and where they stand in memory: what pools of every kind have in common.
//
// A lease is move-only, carries a generation and gives its slot back when it is destroyed or released. Errors: a slot that
// is held is ResourceExhausted, naming its holder and that of the oldest lease; a second release, a use after release and
// a pool that ends before its leases stop the process (programmer's mistakes), naming what the slots are for and the
// microbatch. Where memory is checked, released slots are filled with NaN, and words at both ends of a slot tell a release
// that somebody wrote beyond it. Nothing is allocated after construction. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"

namespace penstock::worker {

// What the slots of a pool are for: "stage 5 layer 3", and what a slot holds.
struct SlotUse {
  StageIndex stage;
  LayerIndex layer{};                // unset: of the whole stage
  const char* holds = "activation";  // lives as long as the program
};
std::string described(const SlotUse& use);  // "stage 5", "stage 5 layer 3"

class SlotLedger;

class SlotLease {
 public:
  SlotLease() = default;
  SlotLease(SlotLease&& other) noexcept;
  SlotLease& operator=(SlotLease&& other) noexcept;
  ~SlotLease();

  bool held() const { return ledger_ != nullptr; }
  int slot() const;
  uint64_t generation() const { return generation_; }
  void* data() const;  // first byte of the slot; checks the generation
  void release();

 private:
  friend class SlotLedger;
  SlotLease(SlotLedger& ledger, int slot);
  std::string described() const;  // also after the end

  SlotLedger* ledger_ = nullptr;
  SlotUse use_;
  int slot_ = -1;
  uint64_t generation_ = 0;
  MicrobatchIndex holder_;
};

// Slot i begins at data + i x (slot_bytes + 2 x guard_bytes) + guard_bytes.
struct SlotMemory {
  void* data = nullptr;  // outlives the ledger
  int64_t slot_bytes = 0;
  int64_t guard_bytes = 0;  // at each end; whole words of 8
  bool poisons = false;     // fills released slots with NaN

  int64_t stride_bytes() const { return slot_bytes + 2 * guard_bytes; }
};

class SlotLedger {
 public:
  // `clock` tells the age of leases, and outlives the ledger; null: ages are not told.
  SlotLedger(const SlotUse& use, int slots, const SlotMemory& memory, const Clock* clock = nullptr);
  SlotLedger(const SlotLedger&) = delete;
  SlotLedger& operator=(const SlotLedger&) = delete;
  ~SlotLedger();

  // Takes this slot, which is in range.
  StatusOr<SlotLease> take(int slot, MicrobatchIndex holder);
  // Takes the free one with the lowest number.
  StatusOr<SlotLease> take_lowest(MicrobatchIndex holder);

  const SlotUse& use() const { return use_; }
  int capacity() const { return static_cast<int>(slots_.size()); }
  int held() const { return held_; }
  int held_peak() const { return held_peak_; }
  // The longest that any lease has been held of those that ended since the last call, or have not ended.
  Duration take_longest_lease();

 private:
  friend class SlotLease;
  friend class LeaseRuleOff;  // testing/lease_rule_off.h, of tests
  struct Slot {
    bool held = false;
    uint64_t generation = 0;
    uint64_t taken_at = 0;  // count of leases, for "oldest"
    TimePoint since;
    MicrobatchIndex holder;
  };
  void release(int slot, uint64_t generation);
  void* data(int slot, uint64_t generation) const;
  char* place(int slot) const;
  void write_guards(int slot);
  void check_guards(int slot) const;
  std::string oldest_lease() const;
  Duration age(const Slot& slot) const;

  SlotUse use_;
  SlotMemory memory_;
  const Clock* clock_;
  std::vector<Slot> slots_;
  uint64_t leases_ = 0;
  int held_ = 0;
  int held_peak_ = 0;
  Duration longest_ended_{};
};

}  // namespace penstock::worker
