#include "worker/transport/shared_memory/incoming.h"

#include <algorithm>

namespace penstock::worker {

void Incoming::post(Transfer& transfer) {
  const WindowPlace place = mine_.place_of(transfer.data, transfer.bytes);
  transfer.staged = place.region == Credit::kStaged && transfer.bytes > 0;
  queue_.push(transfer);
  Credit& credit = channel_.credits[posted_ % kReceivesInFlight];
  credit.number.store(posted_, std::memory_order_relaxed);
  credit.bytes.store(transfer.bytes, std::memory_order_relaxed);
  credit.region.store(place.region, std::memory_order_relaxed);
  credit.offset.store(place.offset, std::memory_order_relaxed);
  channel_.credited.store(++posted_, std::memory_order_seq_cst);
  // Most credits come before the messages that they are for, and wake nobody.
  const bool is_waited_for = channel_.wanted.load(std::memory_order_seq_cst) == posted_;
  if (is_waited_for) ring(theirs_.bell(), Sleeper::Progress);
}

Status Incoming::check_counters(uint64_t delivered, uint64_t staged) {
  if (delivered < delivered_seen_ || delivered > posted_) {
    return aborted("rank {} found damage by rank {}: {} messages delivered after {}, of {} expected", rank_,
                   peer_, delivered, delivered_seen_, posted_);
  }
  const uint64_t in_ring = staged - taken_;
  const bool owed = queue_.empty() && in_ring > 0;
  if (staged < staged_seen_ || in_ring > static_cast<uint64_t>(mine_.staging_bytes()) || owed) {
    return aborted("rank {} found damage by rank {}: {} bytes staged after {}, of which {} were taken", rank_,
                   peer_, staged, staged_seen_, taken_);
  }
  delivered_seen_ = delivered;
  staged_seen_ = staged;
  return ok_status();
}

StatusOr<std::optional<Piece>> Incoming::next() {
  const uint64_t delivered = channel_.delivered.load(std::memory_order_acquire);
  const uint64_t staged = channel_.staged.load(std::memory_order_acquire);
  PENSTOCK_RETURN_IF_ERROR(check_counters(delivered, staged));
  while (!queue_.empty() && !queue_.front().staged && completed_ < delivered) complete();
  if (queue_.empty() || !queue_.front().staged) return std::nullopt;
  const Transfer& transfer = queue_.front();
  if (staged == taken_) {
    if (completed_ >= delivered) return std::nullopt;
    return aborted("rank {} found damage by rank {}: message {} delivered after {} of its {} bytes", rank_,
                   peer_, completed_, transfer.moved, transfer.bytes);
  }
  const int64_t ring = mine_.staging_bytes();
  const auto at = static_cast<int64_t>(taken_ % static_cast<uint64_t>(ring));
  const int64_t bytes =
      std::min({transfer.bytes - transfer.moved, static_cast<int64_t>(staged - taken_), ring - at});
  return Piece{transfer.data + transfer.moved, mine_.staging(peer_) + at, bytes};
}

void Incoming::moved(const Piece& piece) {
  channel_.taken.store(taken_ += static_cast<uint64_t>(piece.bytes), std::memory_order_release);
  ring(theirs_.bell(), Sleeper::Progress);
  Transfer& transfer = queue_.front();
  transfer.moved += piece.bytes;
  if (transfer.moved == transfer.bytes) complete();
}

void Incoming::complete() {
  queue_.front().done = true;
  queue_.pop();
  ++completed_;
}

}  // namespace penstock::worker
