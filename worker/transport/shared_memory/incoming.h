// The messages of one peer to this rank: credits for those that are expected, and the ends of those that came.
//
// Pure but for the shared memory. Errors: Aborted for values that the peer cannot have meant. Thread: under the
// endpoint's mutex, but for the copy of a piece.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "worker/transport/shared_memory/transfer.h"
#include "worker/transport/shared_memory/window.h"

namespace penstock::worker {

class Incoming {
 public:
  // `mine`: where the peer puts its messages; `theirs`: whose owner is told of new credits. Both outlive this.
  Incoming(int rank, int peer, const Window& mine, const Window& theirs)
      : rank_(rank), peer_(peer), mine_(mine), theirs_(theirs), channel_(mine.channel(peer)) {}

  // Whether kReceivesInFlight messages are expected already.
  bool full() const { return posted_ - completed_ == kReceivesInFlight; }
  // Gives the peer a credit. Not while full().
  void post(Transfer& transfer);
  // Ends the transfers whose messages have come whole, up to one that this process has to copy: then a piece of it.
  StatusOr<std::optional<Piece>> next();
  // After the copy: the peer may use its place in the ring again.
  void moved(const Piece& piece);

  uint64_t posted() const { return posted_; }
  uint64_t completed() const { return completed_; }

  bool busy = false;  // somebody copies

 private:
  Status check_counters(uint64_t delivered, uint64_t staged);
  void complete();

  int rank_;
  int peer_;
  const Window& mine_;
  const Window& theirs_;
  Channel& channel_;
  TransferQueue queue_;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t taken_ = 0;
  uint64_t delivered_seen_ = 0;
  uint64_t staged_seen_ = 0;
};

}  // namespace penstock::worker
