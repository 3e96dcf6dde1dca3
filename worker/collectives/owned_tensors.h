// Gives float32 tensors to all ranks of a group, each from the one rank that owns it, in messages of at most kChunkBytes.
// All owners send at once.
//
// Errors: those of the endpoint; nothing is under way afterwards. Thread: the interpreter's, at the same place among the
// messages of all ranks. Nothing is allocated after construction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/tensor/tensor.h"
#include "worker/collectives/group_member.h"
#include "worker/transport/pending_transfers.h"

namespace penstock::worker {

struct OwnedTensor {
  RankIndex owner;  // in the group
  kernels::TensorView tensor;
};

class OwnedTensors {
 public:
  static constexpr int64_t kChunkBytes = 1 << 20;
  static constexpr int kInFlight = 2;  // chunks of each owner

  // `group` is connected. Every rank names the same tensors and owners, in the same order; tensors stay where they are.
  OwnedTensors(const GroupMember& group, const std::vector<OwnedTensor>& tensors);

  // Afterwards every rank has the owners' bits.
  Status share();

 private:
  struct Chunk {
    float* values = nullptr;
    int64_t bytes = 0;
  };
  Status post(PendingTransfers& slot, size_t round);
  Status play();

  size_t me_;
  std::vector<std::vector<Chunk>> chunks_;  // [owner]
  size_t rounds_ = 0;
  std::array<PendingTransfers, kInFlight> slots_;
};

}  // namespace penstock::worker
