// The layout of a rank's window: what its peers see of it, and where they put their messages.
//
//     region 0     header | a Channel for every peer | a staging ring for every peer
//     region 1...  memory that the rank asked for before it opened: messages are put there directly
//
// A channel carries the messages of one peer to the window's owner. The owner gives credits, one for each receive that
// it has posted: how long the message is to be, and where in the window it goes. The peer puts the message there and
// then counts it as delivered. A receive into memory outside of the window has a credit without a place: its message
// passes through the staging ring, piece by piece, and the owner copies it out.
//
//     owner   credits[n] = {bytes, place}; credited = n + 1 (release)    taken  = bytes copied out of the ring (release)
//     peer    the bytes, then delivered = n + 1 (release)                staged = bytes copied into the ring (release)
//
// Whoever reads a counter (acquire) sees what was written before it. All counters only grow. Every process may write
// everything here, and what it reads of another's it checks: counters against what it did itself, places against the
// window's regions. Numbers are read once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "worker/transport/shared_memory/doorbell.h"
#include "worker/transport/shared_memory/region.h"

namespace penstock::worker {

inline constexpr uint64_t kReceivesInFlight = 4096;  // credits of a channel
inline constexpr size_t kLongestReason = 448;

struct WindowHeader {
  uint64_t nonce = 0;
  int32_t rank = -1;
  int32_t ranks = 0;
  alignas(64) Doorbell bell{0};
};

struct Credit {
  static constexpr int32_t kStaged = -1;  // as the region: through the staging ring
  std::atomic<uint64_t> number{0};        // of the message, as a check
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> offset{0};
  std::atomic<int32_t> region{kStaged};
};

struct Channel {
  static constexpr uint32_t kGoodbye = 1;
  static constexpr uint32_t kAbort = 2;

  // Written by the owner of the window.
  alignas(64) std::atomic<uint64_t> credited{0};
  std::atomic<uint64_t> taken{0};
  // Written by the peer.
  alignas(64) std::atomic<uint64_t> delivered{0};
  std::atomic<uint64_t> staged{0};
  std::atomic<uint64_t> wanted{
      0};  // the number of credits that it waits for; it is told when there are so many
  alignas(64) std::atomic<uint32_t> said{0};  // after what belongs to it:
  std::atomic<uint64_t> sends{0};             // kGoodbye: messages that it has sent
  std::atomic<uint64_t> receives{0};          // kGoodbye: messages that it has received
  std::atomic<uint32_t> reason_size{0};       // kAbort
  std::array<char, kLongestReason> reason{};  // kAbort
  alignas(64) std::array<Credit, kReceivesInFlight> credits{};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

// A place in a window; region Credit::kStaged: none.
struct WindowPlace {
  int32_t region = Credit::kStaged;
  int64_t offset = 0;
};

class Window {
 public:
  // A new one of my own, whose first region is made here. `regions`: the others.
  static StatusOr<Window> create(int rank, int ranks, uint64_t nonce,
                                 std::vector<std::shared_ptr<Region>> regions);
  // A peer's, as it was mapped. DataLoss: it is not that rank's.
  static StatusOr<Window> of_peer(int rank, int ranks, uint64_t nonce,
                                  std::vector<std::shared_ptr<Region>> regions);

  WindowHeader& header() const { return *reinterpret_cast<WindowHeader*>(regions_[0]->data()); }
  Doorbell& bell() const { return header().bell; }
  Channel& channel(int peer) const;
  char* staging(int peer) const;
  int64_t staging_bytes() const;
  const std::vector<std::shared_ptr<Region>>& regions() const { return regions_; }

  // Where my memory lies in my window, if it does.
  WindowPlace place_of(const void* address, int64_t bytes) const;
  // Null unless all of it lies within a region that messages may be put into.
  char* find(const WindowPlace& place, int64_t bytes) const;

 private:
  Window(int ranks, std::vector<std::shared_ptr<Region>> regions)
      : ranks_(ranks), regions_(std::move(regions)) {}

  int ranks_;
  std::vector<std::shared_ptr<Region>> regions_;
};

}  // namespace penstock::worker
