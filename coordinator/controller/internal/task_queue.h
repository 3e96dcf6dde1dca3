// Work for one thread, in order, with a bound for what may be refused.
//
// Thread: post from any, take from one.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace penstock::coordinator {

using Task = std::function<void()>;

class TaskQueue {
 public:
  explicit TaskQueue(size_t bound) : bound_(bound) {}

  enum class Posted { Taken, Full, Closed };
  // Full: `bound` bounded tasks wait already.
  Posted post(Task task) { return push(std::move(task), true); }
  // For tasks whose number something else bounds. False when the queue is closed.
  bool post_always(Task task) { return push(std::move(task), false) == Posted::Taken; }

  // Everything that waits, or nothing when `until` comes first. Nullopt: closed, and all has been taken.
  std::optional<std::vector<Task>> take(std::optional<TimePoint> until) {
    std::unique_lock lock(mutex_);
    const auto something = [this] { return closed_ || !tasks_.empty(); };
    if (until) {
      wake_.wait_until(lock, *until, something);
    } else {
      wake_.wait(lock, something);
    }
    if (closed_ && tasks_.empty()) return std::nullopt;
    bounded_ = 0;
    return std::exchange(tasks_, {});
  }

  // Nothing is accepted any more; what waits is still taken.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    wake_.notify_all();
  }

 private:
  Posted push(Task task, bool is_bounded) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Posted::Closed;
    if (is_bounded && bounded_ >= bound_) return Posted::Full;
    bounded_ += is_bounded;
    tasks_.push_back(std::move(task));
    wake_.notify_one();
    return Posted::Taken;
  }

  const size_t bound_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::vector<Task> tasks_;
  size_t bounded_ = 0;
  bool closed_ = false;
};

}  // namespace penstock::coordinator
