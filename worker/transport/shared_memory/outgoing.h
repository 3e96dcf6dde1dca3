// The messages of this rank to one peer: matched with the peer's credits in order, and put into its window.
//
// Pure but for the shared memory. While a piece is copied nothing else is asked of this; whoever copies holds `busy`.
// Errors: Aborted, both for sizes that differ and for values in the peer's window that it cannot have meant.
// Thread: under the endpoint's mutex.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "worker/transport/shared_memory/transfer.h"
#include "worker/transport/shared_memory/window.h"

namespace penstock::worker {

class Outgoing {
 public:
  // `window`: the peer's; outlives this.
  Outgoing(int rank, int peer, const Window& window)
      : rank_(rank), peer_(peer), window_(window), channel_(window.channel(rank)) {}

  void post(Transfer& transfer);
  // What can be copied now; nothing: no message, no credit, or no room in the ring. May be empty, for a message of no
  // bytes.
  StatusOr<std::optional<Piece>> next();
  // After the copy: tells the peer.
  void moved(const Piece& piece);

  uint64_t posted() const { return posted_; }
  uint64_t completed() const { return delivered_; }

  bool busy = false;  // somebody copies

 private:
  StatusOr<bool> meet_credit(const Transfer& transfer);
  StatusOr<std::optional<Piece>> next_staged(const Transfer& transfer);

  int rank_;
  int peer_;
  const Window& window_;
  Channel& channel_;
  TransferQueue queue_;
  uint64_t posted_ = 0;
  uint64_t delivered_ = 0;
  uint64_t staged_ = 0;
  uint64_t credited_seen_ = 0;
  uint64_t taken_seen_ = 0;
  // Of the first message in the queue, once its credit has come.
  bool met_ = false;
  char* target_ = nullptr;  // null: through the ring
};

}  // namespace penstock::worker
