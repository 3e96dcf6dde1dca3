#include "worker/collectives/owned_tensors.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::worker {

OwnedTensors::OwnedTensors(const GroupMember& group, const std::vector<OwnedTensor>& tensors)
    : me_(static_cast<size_t>(group.rank.value)),
      chunks_(static_cast<size_t>(group.ranks)),
      slots_{PendingTransfers(*group.endpoint, 2L * group.ranks),
             PendingTransfers(*group.endpoint, 2L * group.ranks)} {
  for (const auto& [owner, tensor] : tensors) {
    PENSTOCK_CHECK(owner.is_set() && owner.value < group.ranks, "owner {} of {} ranks", owner.value,
                   group.ranks);
    std::vector<Chunk>& chunks = chunks_[static_cast<size_t>(owner.value)];
    for (int64_t first = 0; first < tensor.bytes(); first += kChunkBytes) {
      float* const values = tensor.f32() + first / static_cast<int64_t>(sizeof(float));
      chunks.push_back({values, std::min(kChunkBytes, tensor.bytes() - first)});
    }
    rounds_ = std::max(rounds_, chunks.size());
  }
}

Status OwnedTensors::share() {
  const Status status = play();
  if (status.ok()) return status;
  for (PendingTransfers& slot : slots_) (void)slot.give_up(status);
  return status;
}

Status OwnedTensors::play() {
  for (size_t round = 0; round < rounds_; ++round) {
    PendingTransfers& slot = slots_[round % kInFlight];
    PENSTOCK_RETURN_IF_ERROR(slot.wait());
    PENSTOCK_RETURN_IF_ERROR(post(slot, round));
  }
  for (size_t round = rounds_; round < rounds_ + kInFlight; ++round)
    PENSTOCK_RETURN_IF_ERROR(slots_[round % kInFlight].wait());
  return ok_status();
}

Status OwnedTensors::post(PendingTransfers& slot, size_t round) {
  for (size_t peer = 0; peer < chunks_.size(); ++peer) {
    if (peer == me_) continue;
    const RankIndex other(static_cast<int64_t>(peer));
    if (round < chunks_[peer].size()) {
      const Chunk& theirs = chunks_[peer][round];
      PENSTOCK_RETURN_IF_ERROR(slot.post_receive(other, theirs.values, theirs.bytes));
    }
    if (round < chunks_[me_].size()) {
      const Chunk& mine = chunks_[me_][round];
      PENSTOCK_RETURN_IF_ERROR(slot.post_send(other, mine.values, mine.bytes));
    }
  }
  return ok_status();
}

}  // namespace penstock::worker
