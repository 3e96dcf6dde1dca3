// A word in shared memory that sleepers of several processes wait at, and whoever has news for them rings.
//
// Whoever sleeps reads the word, looks at everything that could have happened, and sleeps only while the word is still
// what it read: what is published before ring() is never missed. Nobody spins: the kernel holds the sleepers (futex).
// A woken sleeper may find nothing: it looks again.
// Thread: any, of any process that maps the word.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace penstock::worker {

// Who sleeps at a doorbell: the endpoint's progress thread, and the rank that is in wait() or drain().
enum class Sleeper : uint32_t { Progress = 1, Waiter = 2, Both = 3 };

using Doorbell = std::atomic<uint32_t>;
static_assert(Doorbell::is_always_lock_free && sizeof(Doorbell) == sizeof(uint32_t));

inline void ring(Doorbell& bell, Sleeper whom) {
  bell.fetch_add(1, std::memory_order_acq_rel);
  syscall(SYS_futex, &bell, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, static_cast<uint32_t>(whom));
}

inline void sleep_while(Doorbell& bell, uint32_t seen, Sleeper who) {
  syscall(SYS_futex, &bell, FUTEX_WAIT_BITSET, seen, nullptr, nullptr, static_cast<uint32_t>(who));
}

}  // namespace penstock::worker
