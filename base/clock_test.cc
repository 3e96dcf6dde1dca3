#include "base/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace penstock {
namespace {

TEST(FakeClock, moves_only_when_told_to) {
  FakeClock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(1500ms);
  EXPECT_EQ(clock.now() - start, 1500ms);
  EXPECT_EQ(clock.unix_milliseconds(), 1'700'000'001'500);
}

TEST(SystemClock, does_not_go_back) {
  const SystemClock clock;
  const TimePoint first = clock.now();
  EXPECT_GE(clock.now(), first);
}

TEST(ThreadCpuTime, counts_work_and_not_another_threads_work) {
  const Duration before = thread_cpu_time();
  Duration of_other{};
  std::thread([&] {
    const Duration begin = thread_cpu_time();
    while (thread_cpu_time() - begin < 20ms) {
    }
    of_other = thread_cpu_time() - begin;
  }).join();
  EXPECT_GE(of_other, 20ms);
  EXPECT_LT(thread_cpu_time() - before, of_other);
}

}  // namespace
}  // namespace penstock
