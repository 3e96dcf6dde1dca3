// What other threads have for the agent's thread, and a descriptor that wakes its poll.
//
// Thread: post from any thread; take from the agent's.
// Bounds: a coordinator that sends faster than the agent works is refused beyond kMostMessages; ends of
// sessions are few, and broker answers are bounded by the calls.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "penstock/v1/workers.pb.h"
#include "proto/codec/codec.h"

namespace penstock::worker {

struct FromCoordinator {
  int64_t session = 0;  // which of this process's sessions
  v1::CoordinatorMessage message;
};
struct SessionHasRoom {};
struct SessionGone {
  int64_t number = 0;
  std::shared_ptr<void> session;  // to be let go on the agent's thread
  Status status;
  std::vector<v1::WorkerMessage> unsent;
};
struct BrokerAnswered {
  int64_t executor = 0;
  codec::BrokerReply reply;
};
struct DrainWanted {
  std::string reason;
};

class Inbox {
 public:
  static constexpr size_t kMostMessages = 1024;
  using Item = std::variant<FromCoordinator, SessionHasRoom, SessionGone, BrokerAnswered, DrainWanted>;

  Inbox() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Inbox() { close(wake_); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // False: too much waits already.
  bool post(Item item) {
    const std::lock_guard lock(mutex_);
    if (std::holds_alternative<FromCoordinator>(item) && items_.size() >= kMostMessages) return false;
    items_.push_back(std::move(item));
    (void)!eventfd_write(wake_, 1);
    return true;
  }
  std::vector<Item> take() {
    eventfd_t ignored = 0;
    (void)!eventfd_read(wake_, &ignored);
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }
  // Readable while something waits.
  int descriptor() const { return wake_; }

 private:
  const int wake_;
  std::mutex mutex_;
  std::vector<Item> items_;
};

}  // namespace penstock::worker
