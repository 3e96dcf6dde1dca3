// The compute threads of one rank: shares out independent pieces of an operation.
//
// The pieces are fixed by the caller, never by the number of threads, so results do not depend on it. Every
// thread runs oneDNN with one OpenMP thread. Waiting threads sleep; they do not spin. Thread: parallel_for is
// called by one thread at a time (the interpreter's), never from inside a piece.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace penstock::kernels {

// Pins OpenMP to one thread in the calling thread: the setting is per thread, and a new thread starts with
// all cores.
void use_one_openmp_thread();

class ComputeThreads {
 public:
  // threads >= 1; the caller of parallel_for is one of them.
  explicit ComputeThreads(int threads);
  ~ComputeThreads();
  ComputeThreads(const ComputeThreads&) = delete;
  ComputeThreads& operator=(const ComputeThreads&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Runs piece(0) .. piece(pieces - 1), each once, in any order on any thread; returns when all have ended.
  // Nothing is allocated. An exception that leaves a piece stops the process.
  template <typename Piece>
  void parallel_for(int64_t pieces, const Piece& piece) {
    run(pieces, std::function<void(int64_t)>(std::cref(piece)));
  }

  // Inside a piece: which thread runs it, 0 (the caller) .. threads() - 1. For scratch memory, never for
  // results.
  static int current_thread();

  // CPU time that the helper threads have used; the caller's own is thread_cpu_time().
  Duration helper_cpu_time();

 private:
  void run(int64_t pieces, const std::function<void(int64_t)>& piece);
  void helper_loop(int index);
  void take_pieces_locked(
      std::unique_lock<std::mutex>& lock) noexcept;  // REQUIRES lock; holds it again at return

  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable work_done_;
  const std::function<void(int64_t)>* piece_ = nullptr;
  int64_t pieces_ = 0;
  int64_t next_ = 0;
  int64_t running_ = 0;  // pieces taken and not ended
  bool stopping_ = false;
  std::vector<Duration> helper_cpu_;
  std::vector<std::thread> helpers_;
};

}  // namespace penstock::kernels
