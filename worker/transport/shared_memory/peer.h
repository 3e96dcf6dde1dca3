// What the endpoint keeps of one peer. Guarded by the endpoint's mutex.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "worker/transport/shared_memory/incoming.h"
#include "worker/transport/shared_memory/outgoing.h"
#include "worker/transport/shared_memory/window.h"

namespace penstock::worker {

struct Peer {
  // `mine` outlives it.
  Peer(int self, int other, pid_t process, const Window& mine, Window theirs)
      : rank(other),
        pid(process),
        window(std::move(theirs)),
        hears(mine.channel(other)),
        tells(window.channel(self)),
        outgoing(self, other, window),
        incoming(self, other, mine, window) {}

  int rank;
  pid_t pid;
  Window window;
  Channel& hears;
  Channel& tells;
  Outgoing outgoing;
  Incoming incoming;
  bool goodbye_received = false;
  uint64_t sends_at_goodbye = 0;  // of the peer
  uint64_t receives_at_goodbye = 0;

  void tell_goodbye() {
    tells.sends.store(outgoing.posted(), std::memory_order_relaxed);
    tells.receives.store(incoming.posted(), std::memory_order_relaxed);
    tells.said.fetch_or(Channel::kGoodbye, std::memory_order_acq_rel);
    ring(window.bell(), Sleeper::Both);
  }

  void tell_abort(const std::string& reason) {
    const size_t size = std::min(reason.size(), kLongestReason);
    std::memcpy(tells.reason.data(), reason.data(), size);
    tells.reason_size.store(static_cast<uint32_t>(size), std::memory_order_relaxed);
    tells.said.fetch_or(Channel::kAbort, std::memory_order_acq_rel);
    ring(window.bell(), Sleeper::Both);
  }

  std::string abort_reason() const {
    const size_t size = std::min<size_t>(hears.reason_size.load(std::memory_order_relaxed), kLongestReason);
    return {hears.reason.data(), size};
  }
};

}  // namespace penstock::worker
