// A rendezvous in memory that forked processes share. For tests: a value that does not fit stops the process, and
// a process that is killed while it reads or writes the table leaves it usable.
//
// Thread: any, of any of the processes.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <string>

#include "base/check.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

class SharedRendezvous final : public Rendezvous {
 public:
  static SharedRendezvous* create() {
    void* memory =
        mmap(nullptr, sizeof(SharedRendezvous), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    PENSTOCK_CHECK(memory != MAP_FAILED);
    return new (memory) SharedRendezvous;
  }
  static void destroy(SharedRendezvous* rendezvous) { munmap(rendezvous, sizeof(SharedRendezvous)); }

  Status publish(RankIndex rank, const std::string& item, const std::string& value) override {
    lock();
    const bool fits =
        used_ < kEntries && value.size() <= sizeof(Entry::value) && item.size() < sizeof(Entry::item);
    PENSTOCK_CHECK(fits, "the table of the test is too small");
    Entry& entry = entries_[used_];
    entry.rank = rank.value;
    std::strcpy(entry.item, item.c_str());
    entry.size = value.size();
    std::memcpy(entry.value, value.data(), value.size());
    ++used_;  // last: whoever dies before it leaves no half entry
    futex(FUTEX_WAKE, INT_MAX, nullptr);
    pthread_mutex_unlock(&mutex_);
    return ok_status();
  }

  StatusOr<std::string> look_up(RankIndex rank, const std::string& item, Duration timeout) override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t until = now.tv_sec * 1'000'000'000 + now.tv_nsec + timeout.count();
    while (true) {
      lock();
      StatusOr<std::string> found = find(rank, item);
      const uint32_t seen = used_;
      pthread_mutex_unlock(&mutex_);
      if (found.ok() || !wait_for_more(seen, until)) return found;
    }
  }

 private:
  static constexpr int kEntries = 64;
  struct Entry {
    int rank = -1;
    char item[32] = {};
    size_t size = 0;
    char value[4096] = {};
  };

  SharedRendezvous() {
    pthread_mutexattr_t mutex_attributes;
    pthread_mutexattr_init(&mutex_attributes);
    pthread_mutexattr_setpshared(&mutex_attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&mutex_attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex_, &mutex_attributes);
  }

  void lock() {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  // Until there are more entries than `seen`; false: `until` has passed. A futex, because a killed waiter of a
  // pthread condition may keep the next one who signals it for ever.
  bool wait_for_more(uint32_t seen, int64_t until) {
    const timespec end{until / 1'000'000'000, until % 1'000'000'000};
    return futex(FUTEX_WAIT_BITSET, seen, &end) == 0 || errno != ETIMEDOUT;
  }
  long futex(int operation, uint32_t value, const timespec* until) {
    return syscall(SYS_futex, &used_, operation, value, until, nullptr, FUTEX_BITSET_MATCH_ANY);
  }

  StatusOr<std::string> find(RankIndex rank, const std::string& item) {
    for (uint32_t i = 0; i < used_; ++i) {
      const Entry& entry = entries_[i];
      if (entry.rank == rank.value && item == entry.item) return std::string(entry.value, entry.size);
    }
    return deadline_exceeded("rank {} did not publish \"{}\" in time", rank.value, item);
  }

  pthread_mutex_t mutex_;
  Entry entries_[kEntries];
  std::atomic<uint32_t> used_{0};  // and the futex
};

}  // namespace penstock::worker
