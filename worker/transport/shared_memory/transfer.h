// A posted message, and the queue of those of one direction. Plain data, guarded by the endpoint's mutex.
#pragma once

#include <cstdint>

namespace penstock::worker {

struct Transfer {
  enum class Direction : uint8_t { Send, Receive };

  Direction direction = Direction::Send;
  int peer = -1;
  char* data = nullptr;
  int64_t bytes = 0;
  int64_t id = -1;      // -1: this record is free
  int64_t moved = 0;    // bytes copied by this process
  bool staged = false;  // a receive through the ring: this process copies it
  bool done = false;
  Transfer* next = nullptr;  // behind it in its queue
};

// First in, first out, through the transfers themselves: posting allocates nothing.
class TransferQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  Transfer& front() { return *first_; }
  void push(Transfer& transfer) {
    transfer.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &transfer;
    last_ = &transfer;
  }
  void pop() { first_ = first_->next; }

 private:
  Transfer* first_ = nullptr;
  Transfer* last_ = nullptr;
};

// Bytes to copy next, without a lock.
struct Piece {
  char* to = nullptr;
  const char* from = nullptr;
  int64_t bytes = 0;
};

}  // namespace penstock::worker
