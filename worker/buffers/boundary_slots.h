// The boundary tensors that one link keeps on this rank: receive slots, send slots or hand-off slots.
//
// A slot passes through these states, and every move is checked, so that a program that reads a tensor before
// it came, or overwrites one that is still on its way, is an error and not a wrong number:
//
//     receive    Free -> Filling (posted) -> Full (arrived)           -> Free (read)
//     send       Free -> Filling (computed) -> Full -> Sending        -> Free (sent)
//     hand-off   Free -> Filling (computed) -> Full                   -> Free (read)
//
// Errors: FailedPrecondition names the link, the slot, its state, the state expected and the microbatch in
// it. Debug builds fill freed slots with NaN. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/device/slab.h"

namespace penstock::worker {

enum class BoundaryState : uint8_t { Free, Filling, Full, Sending };

class BoundarySlots {
 public:
  // `name` is for messages: "receive slots of link 0>1". `slab` holds slots x slot_bytes and outlives this.
  BoundarySlots(std::string name, int slots, int64_t slot_bytes, kernels::SlabView slab);

  Status fill(int slot, MicrobatchIndex microbatch);  // Free -> Filling
  Status filled(int slot);                            // Filling -> Full
  Status check_full(int slot) const;                  // Full, as its reader expects
  Status send(int slot);                              // Full -> Sending
  Status free_read(int slot);                         // Full -> Free
  Status free_sent(int slot);                         // Sending -> Free
  void free_all();                                    // from any state; no transfer of a slot is under way

  void* data(int slot) const;
  int capacity() const { return static_cast<int>(slots_.size()); }
  int64_t slot_bytes() const { return slot_bytes_; }
  int in_use_peak() const { return in_use_peak_; }
  bool all_free() const { return in_use_ == 0; }

 private:
  struct Slot {
    BoundaryState state = BoundaryState::Free;
    MicrobatchIndex microbatch;
  };
  Status expect(int slot, BoundaryState state) const;
  void free(int slot);

  std::string name_;
  int64_t slot_bytes_;
  kernels::SlabView slab_;
  std::vector<Slot> slots_;
  int in_use_ = 0;
  int in_use_peak_ = 0;
};

}  // namespace penstock::worker
