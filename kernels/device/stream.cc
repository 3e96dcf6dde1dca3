#include "kernels/device/stream.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "kernels/device/compute_threads.h"

namespace penstock::kernels {

// Records are numbered; the event has passed when the latest number has been reached.
struct EventView::State : std::enable_shared_from_this<EventView::State> {
  std::mutex mutex;
  std::condition_variable passed;
  uint64_t recorded = 0;
  uint64_t reached = 0;

  uint64_t next_record() {
    std::lock_guard lock(mutex);
    return ++recorded;
  }
  uint64_t latest_record() {
    std::lock_guard lock(mutex);
    return recorded;
  }
  void reach(uint64_t record) {
    {
      std::lock_guard lock(mutex);
      reached = std::max(reached, record);
    }
    passed.notify_all();
  }
  void wait_for(uint64_t record) {
    std::unique_lock lock(mutex);
    passed.wait(lock, [&] { return reached >= record; });
  }
};

bool EventView::query() const {
  std::lock_guard lock(state_->mutex);
  return state_->reached >= state_->recorded;
}

void EventView::synchronize() const {
  state_->wait_for(state_->latest_record());
}

Event::Event() : state_(std::make_shared<EventView::State>()) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

class StreamView::Queue {
 public:
  Queue(const std::string& name, size_t capacity) : capacity_(capacity) {
    PENSTOCK_CHECK(capacity >= 1);
    thread_ = std::thread([this, name] { loop(name); });
  }

  ~Queue() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void push(std::function<void()> work) {
    PENSTOCK_CHECK(std::this_thread::get_id() != thread_.get_id(), "work enqueued on its own stream");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.size() < capacity_; });
    work_.push_back(std::move(work));
    ++enqueued_;
    changed_.notify_all();
  }

  bool idle() {
    std::lock_guard lock(mutex_);
    return ended_ == enqueued_;
  }

  void synchronize() {
    std::unique_lock lock(mutex_);
    const uint64_t until = enqueued_;
    changed_.wait(lock, [&] { return ended_ >= until; });
  }

 private:
  void loop(const std::string& name) noexcept {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    use_one_openmp_thread();
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !work_.empty(); });
      if (work_.empty()) return;
      run_first(lock);
    }
  }

  // The work under way still counts against the capacity, and is destroyed before it counts as ended.
  void run_first(std::unique_lock<std::mutex>& lock) {
    std::function<void()> work = std::move(work_.front());
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    work_.pop_front();
    ++ended_;
    changed_.notify_all();
  }

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t enqueued_ = 0;
  uint64_t ended_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

void StreamView::enqueue(std::function<void()> work) const {
  queue_->push(std::move(work));
}

void StreamView::record(EventView event) const {
  const uint64_t record = event.state_->next_record();
  queue_->push([state = event.state_->shared_from_this(), record] { state->reach(record); });
}

void StreamView::wait(EventView event) const {
  const uint64_t record = event.state_->latest_record();
  queue_->push([state = event.state_->shared_from_this(), record] { state->wait_for(record); });
}

bool StreamView::query() const {
  return queue_->idle();
}

void StreamView::synchronize() const {
  queue_->synchronize();
}

Stream::Stream(const std::string& name, size_t capacity)
    : queue_(std::make_unique<StreamView::Queue>(name, capacity)) {}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;

}  // namespace penstock::kernels
