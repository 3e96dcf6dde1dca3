// The records of transfers that were posted and not yet waited for, used again: a training step allocates nothing here.
//
// An id holds the record's place and how often records were taken before it, so that a stale id is found out.
// Thread: under the endpoint's mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "worker/transport/shared_memory/transfer.h"

namespace penstock::worker {

class TransferTable {
 public:
  explicit TransferTable(int64_t capacity) : capacity_(capacity) {}

  bool full() const { return active_ == capacity_; }
  int64_t active() const { return active_; }

  // Not while full().
  Transfer& take() {
    if (free_.empty()) {
      transfers_.emplace_back();
      free_.push_back(static_cast<int64_t>(transfers_.size()) - 1);
    }
    const int64_t index = free_.back();
    free_.pop_back();
    Transfer& transfer = transfers_[static_cast<size_t>(index)];
    transfer = Transfer{};
    transfer.id = uses_++ * capacity_ + index;
    ++active_;
    return transfer;
  }

  // Null: no such id, or given back before.
  Transfer* find(int64_t id) {
    const int64_t index = id % capacity_;
    if (id < 0 || index >= static_cast<int64_t>(transfers_.size())) return nullptr;
    Transfer& transfer = transfers_[static_cast<size_t>(index)];
    return transfer.id == id ? &transfer : nullptr;
  }

  void give_back(Transfer& transfer) {
    free_.push_back(transfer.id % capacity_);
    transfer.id = -1;
    --active_;
  }

 private:
  int64_t capacity_;
  int64_t active_ = 0;
  int64_t uses_ = 0;
  std::deque<Transfer> transfers_;
  std::vector<int64_t> free_;
};

}  // namespace penstock::worker
