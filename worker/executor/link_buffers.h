// The boundary tensors of a rank: receive, send and hand-off slots of every link that touches it, in one
// slab.
//
// Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/device/slab.h"
#include "plan/schedule/lowered.h"
#include "worker/buffers/boundary_slots.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

class LinkBuffers {
 public:
  // `tensor_bytes`: of one boundary tensor. `endpoint`, which is not open yet, is asked for memory that its peers write
  // into. ResourceExhausted: no memory, with the bytes asked for.
  static StatusOr<LinkBuffers> create(const plan::RankProgram& program, int64_t tensor_bytes,
                                      Endpoint& endpoint);
  // In memory of its own.
  static StatusOr<LinkBuffers> create(const plan::RankProgram& program, int64_t tensor_bytes);

  // This rank's end of the link: the receive slots where it is the target, the send slots where it is the
  // source, the hand-off slots where it is both. NotFound names the link.
  StatusOr<BoundarySlots*> find(RankIndex source, RankIndex target);

  // Frees every slot of every link, whatever is in it; no transfer is under way.
  void free_all();
  // Whether every slot of every link is free.
  bool all_free() const;
  // Memory account.
  int64_t bytes() const { return bytes_; }
  int64_t tensor_bytes() const { return tensor_bytes_; }

 private:
  struct Entry {
    RankIndex source;
    RankIndex target;
    BoundarySlots slots;
  };
  LinkBuffers(const plan::RankProgram& program, int64_t tensor_bytes);
  // `memory`: bytes() of them.
  void place_slots(const plan::RankProgram& program, char* memory);

  std::shared_ptr<void> endpoint_memory_;  // or
  kernels::Slab slab_;
  int64_t tensor_bytes_ = 0;
  int64_t slot_bytes_ = 0;
  int64_t bytes_ = 0;
  std::deque<Entry> links_;  // addresses stay
};

}  // namespace penstock::worker
