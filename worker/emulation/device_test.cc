#include "worker/emulation/device.h"

#include <gtest/gtest.h>

#include "worker/emulation/testing/manual_timer.h"

namespace penstock::worker {
namespace {

TimePoint at(Duration since_start) {
  return TimePoint{} + since_start;
}

TEST(EmulatedDevice, an_action_ends_its_time_after_the_one_before) {
  ManualTimer timer;
  EmulatedDevice device(timer);
  device.run(5ms);
  device.run(7ms);
  EXPECT_EQ(timer.now(), at(12ms));
  EXPECT_EQ(device.largest_lateness(), 0ms);
}

TEST(EmulatedDevice, a_late_wake_up_does_not_make_the_next_one_late) {
  // Sleeping for a time instead of until a moment would end at 13 ms.
  ManualTimer timer;
  EmulatedDevice device(timer);
  device.run(5ms);
  timer.pass(1ms);
  device.run(7ms);
  EXPECT_EQ(timer.now(), at(12ms));
}

TEST(EmulatedDevice, an_input_that_comes_later_moves_the_start) {
  ManualTimer timer;
  EmulatedDevice device(timer);
  device.run(5ms);
  device.reach(at(3ms));  // came while the device was busy
  device.run(1ms);
  EXPECT_EQ(timer.now(), at(6ms));
  device.reach(at(10ms));
  device.run(1ms);
  EXPECT_EQ(timer.now(), at(11ms));
}

TEST(EmulatedDevice, what_cannot_be_caught_up_is_told_and_ends_with_the_step) {
  // The timeline may fall behind the clock, and must not claim so in the next step.
  ManualTimer timer;
  EmulatedDevice device(timer);
  device.run(5ms);
  timer.pass(100ms);
  device.run(5ms);
  EXPECT_EQ(timer.now(), at(105ms));
  EXPECT_EQ(device.time(), at(10ms));
  EXPECT_EQ(device.largest_lateness(), 95ms);
  device.start_now();
  device.run(5ms);
  EXPECT_EQ(timer.now(), at(110ms));
}

TEST(EmulatedDevice, the_timeline_begins_at_the_clock) {
  ManualTimer timer;
  timer.pass(1h);
  EmulatedDevice device(timer);
  device.run(5ms);
  EXPECT_EQ(timer.now(), at(1h + 5ms));
  EXPECT_EQ(device.largest_lateness(), 0ms);
}

TEST(EmulatedDevice, what_really_held_up_the_thread_holds_up_the_device) {
  ManualTimer timer;
  EmulatedDevice device(timer);
  device.run(5ms);
  timer.pass(20ms);
  device.hold_up(20ms);
  device.run(5ms);
  EXPECT_EQ(timer.now(), at(30ms));
}

TEST(SystemTimer, sleeps_until_the_moment_and_not_at_all_when_it_has_passed) {
  const std::unique_ptr<Timer> timer = make_system_timer();
  const TimePoint wanted = timer->now() + 2ms;
  timer->sleep_until(wanted);
  EXPECT_GE(timer->now(), wanted);
  timer->sleep_until(wanted - 1h);  // returns
}

}  // namespace
}  // namespace penstock::worker
