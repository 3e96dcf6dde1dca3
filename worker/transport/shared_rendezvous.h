// A rendezvous in memory that forked processes share. For tests: a value that does not fit stops the process.
//
// Thread: any, of any of the processes.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

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
    pthread_mutex_lock(&mutex_);
    const bool fits =
        used_ < kEntries && value.size() <= sizeof(Entry::value) && item.size() < sizeof(Entry::item);
    PENSTOCK_CHECK(fits, "the table of the test is too small");
    Entry& entry = entries_[used_++];
    entry.rank = rank.value;
    std::strcpy(entry.item, item.c_str());
    entry.size = value.size();
    std::memcpy(entry.value, value.data(), value.size());
    pthread_cond_broadcast(&published_);
    pthread_mutex_unlock(&mutex_);
    return ok_status();
  }

  StatusOr<std::string> look_up(RankIndex rank, const std::string& item, Duration timeout) override {
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t ns = until.tv_nsec + timeout.count();
    until.tv_sec += ns / 1'000'000'000;
    until.tv_nsec = ns % 1'000'000'000;
    pthread_mutex_lock(&mutex_);
    StatusOr<std::string> found = find(rank, item);
    while (!found.ok() && pthread_cond_timedwait(&published_, &mutex_, &until) == 0) found = find(rank, item);
    pthread_mutex_unlock(&mutex_);
    return found;
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
    pthread_mutex_init(&mutex_, &mutex_attributes);
    pthread_condattr_t condition_attributes;
    pthread_condattr_init(&condition_attributes);
    pthread_condattr_setpshared(&condition_attributes, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&condition_attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&published_, &condition_attributes);
  }

  StatusOr<std::string> find(RankIndex rank, const std::string& item) {
    for (int i = 0; i < used_; ++i) {
      const Entry& entry = entries_[i];
      if (entry.rank == rank.value && item == entry.item) return std::string(entry.value, entry.size);
    }
    return deadline_exceeded("rank {} did not publish \"{}\" in time", rank.value, item);
  }

  pthread_mutex_t mutex_;
  pthread_cond_t published_;
  Entry entries_[kEntries];
  int used_ = 0;
};

}  // namespace penstock::worker
