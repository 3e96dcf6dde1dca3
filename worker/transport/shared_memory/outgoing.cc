#include "worker/transport/shared_memory/outgoing.h"

#include <algorithm>

namespace penstock::worker {
namespace {

// Between two of them an abort is heard.
constexpr int64_t kPieceBytes = 1 << 20;

Status damaged(int rank, int peer, const std::string& what) {
  return aborted("rank {} found damage in the window of rank {}: {}", rank, peer, what);
}

}  // namespace

void Outgoing::post(Transfer& transfer) {
  queue_.push(transfer);
  ++posted_;
}

// Whether the first message may go, and where.
StatusOr<bool> Outgoing::meet_credit(const Transfer& transfer) {
  uint64_t credited = channel_.credited.load(std::memory_order_acquire);
  if (credited == delivered_) {
    // Asks to be told, and looks again: of the two ends that write and then read, one sees what the other wrote.
    channel_.wanted.store(delivered_ + 1, std::memory_order_seq_cst);
    credited = channel_.credited.load(std::memory_order_seq_cst);
  }
  if (credited < credited_seen_ || credited - delivered_ > kReceivesInFlight) {
    return damaged(
        rank_, peer_,
        fmt::format("{} credits after {}, of which {} were used", credited, credited_seen_, delivered_));
  }
  credited_seen_ = credited;
  if (credited == delivered_) return false;
  const Credit& credit = channel_.credits[delivered_ % kReceivesInFlight];
  const uint64_t number = credit.number.load(std::memory_order_relaxed);
  const int64_t bytes = credit.bytes.load(std::memory_order_relaxed);
  const WindowPlace place{credit.region.load(std::memory_order_relaxed),
                          credit.offset.load(std::memory_order_relaxed)};
  if (number != delivered_) {
    return damaged(rank_, peer_, fmt::format("credit {} expected, {} found", delivered_, number));
  }
  if (bytes != transfer.bytes) {
    return aborted("rank {} sends {} bytes to rank {}, which expects {}", rank_, transfer.bytes, peer_,
                   bytes);
  }
  target_ = place.region == Credit::kStaged ? nullptr : window_.find(place, bytes);
  if (place.region != Credit::kStaged && target_ == nullptr) {
    return damaged(rank_, peer_,
                   fmt::format("a place for {} bytes at {} of region {}, which it does not have", bytes,
                               place.offset, place.region));
  }
  return true;
}

StatusOr<std::optional<Piece>> Outgoing::next() {
  if (queue_.empty()) return std::nullopt;
  const Transfer& transfer = queue_.front();
  if (!met_) {
    PENSTOCK_ASSIGN_OR_RETURN(met_, meet_credit(transfer));
    if (!met_) return std::nullopt;
  }
  const int64_t left = transfer.bytes - transfer.moved;
  if (left == 0) return Piece{};
  if (target_ == nullptr) return next_staged(transfer);
  return Piece{target_ + transfer.moved, transfer.data + transfer.moved, std::min(left, kPieceBytes)};
}

StatusOr<std::optional<Piece>> Outgoing::next_staged(const Transfer& transfer) {
  const uint64_t taken = channel_.taken.load(std::memory_order_acquire);
  if (taken < taken_seen_ || taken > staged_) {
    return damaged(rank_, peer_,
                   fmt::format("{} bytes taken after {}, of {} staged", taken, taken_seen_, staged_));
  }
  taken_seen_ = taken;
  const int64_t ring = window_.staging_bytes();
  const int64_t room = ring - static_cast<int64_t>(staged_ - taken);
  const int64_t at = static_cast<int64_t>(staged_ % static_cast<uint64_t>(ring));
  // A quarter of the ring: the peer copies one out while the next comes in.
  const int64_t bytes = std::min({transfer.bytes - transfer.moved, room, ring - at, ring / 4});
  if (bytes == 0) return std::nullopt;
  return Piece{window_.staging(rank_) + at, transfer.data + transfer.moved, bytes};
}

void Outgoing::moved(const Piece& piece) {
  Transfer& transfer = queue_.front();
  transfer.moved += piece.bytes;
  const bool staged = target_ == nullptr && piece.bytes > 0;
  if (staged) channel_.staged.store(staged_ += static_cast<uint64_t>(piece.bytes), std::memory_order_release);
  const bool whole = transfer.moved == transfer.bytes;
  if (whole) {
    channel_.delivered.store(++delivered_, std::memory_order_release);
    transfer.done = true;
    queue_.pop();
    met_ = false;
  }
  // A message that stands in its place already needs nobody but its waiter.
  if (staged) {
    ring(window_.bell(), Sleeper::Both);
  } else if (whole) {
    ring(window_.bell(), Sleeper::Waiter);
  }
}

}  // namespace penstock::worker
