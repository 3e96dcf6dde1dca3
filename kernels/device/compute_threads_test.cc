#include "kernels/device/compute_threads.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

namespace penstock::kernels {
namespace {

// Holds every piece until `expected` of them are under way, so that as many threads must take part.
class Meeting {
 public:
  explicit Meeting(int expected) : expected_(expected) {}
  void arrive_and_wait() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return arrived_ >= expected_; });
  }

 private:
  const int expected_;
  int arrived_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

TEST(ComputeThreads, every_piece_runs_once) {
  // A piece that is skipped or done twice is a wrong gradient that nobody sees.
  for (int count : {1, 2, 5}) {
    ComputeThreads threads(count);
    EXPECT_EQ(threads.threads(), count);
    for (int64_t pieces : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(pieces);
      for (int round = 0; round < 20; ++round) threads.parallel_for(pieces, [&](int64_t i) { ++runs[i]; });
      for (const auto& each : runs) EXPECT_EQ(each.load(), 20);
    }
  }
}

TEST(ComputeThreads, all_threads_take_part_under_their_own_index) {
  constexpr int kThreads = 3;
  ComputeThreads threads(kThreads);
  Meeting meeting(kThreads);
  std::mutex mutex;
  std::set<int> seen;
  threads.parallel_for(kThreads, [&](int64_t) {
    meeting.arrive_and_wait();
    std::lock_guard lock(mutex);
    seen.insert(ComputeThreads::current_thread());
  });
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2}));
}

TEST(ComputeThreads, every_thread_has_one_openmp_thread) {
  // oneDNN's bits depend on its thread count, and the setting is per thread.
  constexpr int kThreads = 3;
  ComputeThreads threads(kThreads);
  Meeting meeting(kThreads);
  std::atomic<int> sum{0};
  threads.parallel_for(kThreads, [&](int64_t) {
    meeting.arrive_and_wait();
    sum += omp_get_max_threads();
  });
  EXPECT_EQ(sum.load(), kThreads);
}

TEST(ComputeThreads, helper_time_grows_with_work_and_not_with_waiting) {
  // A rank's CPU time tells a crowded host from a slow stage: it must hold the helpers' share.
  ComputeThreads threads(2);
  const Duration start = threads.helper_cpu_time();
  Meeting meeting(2);
  threads.parallel_for(2, [&](int64_t) {
    meeting.arrive_and_wait();
    const Duration until = thread_cpu_time() + 20ms;
    while (thread_cpu_time() < until) {
    }
  });
  const Duration after_work = threads.helper_cpu_time();
  EXPECT_GE(after_work - start, 20ms);
  EXPECT_EQ(threads.helper_cpu_time(), after_work);
}

TEST(ComputeThreadsDeathTest, exception_in_a_piece_stops_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ComputeThreads threads(1);
        threads.parallel_for(1, [](int64_t) { throw std::runtime_error("lost"); });
      },
      "lost");
}

TEST(ComputeThreadsDeathTest, nested_parallel_for_stops_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ComputeThreads threads(1);
        threads.parallel_for(1, [&](int64_t) { threads.parallel_for(1, [](int64_t) {}); });
      },
      "parallel_for inside parallel_for");
}

}  // namespace
}  // namespace penstock::kernels
