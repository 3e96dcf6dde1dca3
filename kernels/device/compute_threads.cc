#include "kernels/device/compute_threads.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <string>

#include "base/check.h"

namespace penstock::kernels {
namespace {

thread_local int thread_index = 0;
thread_local bool one_openmp_thread = false;

}  // namespace

void use_one_openmp_thread() {
  if (one_openmp_thread) return;
  omp_set_num_threads(1);
  one_openmp_thread = true;
}

ComputeThreads::ComputeThreads(int threads) {
  PENSTOCK_CHECK(threads >= 1, "{} compute threads asked for", threads);
  use_one_openmp_thread();
  helper_cpu_.resize(threads - 1);
  helpers_.reserve(threads - 1);
  for (int index = 1; index < threads; ++index) helpers_.emplace_back([this, index] { helper_loop(index); });
}

ComputeThreads::~ComputeThreads() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

int ComputeThreads::current_thread() {
  return thread_index;
}

void ComputeThreads::run(int64_t pieces, const std::function<void(int64_t)>& piece) {
  use_one_openmp_thread();
  std::unique_lock lock(mutex_);
  PENSTOCK_CHECK(piece_ == nullptr, "parallel_for inside parallel_for");
  piece_ = &piece;
  pieces_ = pieces;
  next_ = 0;
  // A helper that wakes late finds nothing left and sleeps again: the caller never waits for a wake-up.
  const int64_t wanted = std::min<int64_t>(pieces - 1, static_cast<int64_t>(helpers_.size()));
  for (int64_t i = 0; i < wanted; ++i) work_ready_.notify_one();
  take_pieces_locked(lock);
  work_done_.wait(lock, [this] { return running_ == 0; });
  piece_ = nullptr;
}

void ComputeThreads::take_pieces_locked(std::unique_lock<std::mutex>& lock) noexcept {
  while (next_ < pieces_) {
    const int64_t taken = next_++;
    ++running_;
    lock.unlock();
    (*piece_)(taken);
    lock.lock();
    --running_;
  }
}

void ComputeThreads::helper_loop(int index) {
  pthread_setname_np(pthread_self(), ("compute-" + std::to_string(index)).c_str());
  thread_index = index;
  use_one_openmp_thread();
  std::unique_lock lock(mutex_);
  while (true) {
    work_ready_.wait(lock, [this] { return stopping_ || next_ < pieces_; });
    if (stopping_) return;
    take_pieces_locked(lock);
    helper_cpu_[index - 1] = thread_cpu_time();
    if (running_ == 0) work_done_.notify_one();
  }
}

Duration ComputeThreads::helper_cpu_time() {
  std::lock_guard lock(mutex_);
  Duration total{};
  for (Duration each : helper_cpu_) total += each;
  return total;
}

}  // namespace penstock::kernels
