// What a job measures is on record while it runs.
#include <gtest/gtest.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words

// A coordinator that dies must find it, whether the job has losses or not.
TEST(Measuring, job_on_emulated_devices_has_its_steps_and_measurements_on_record_while_it_runs) {
  World world;
  Registration emulated = registration("worker-0", 1, 2);
  for (DeviceSlot& slot : emulated.devices) slot.kind = "emulated";
  world.open(emulated);
  const std::string name =
      world.submit({.steps = 100, .device = "{kind: emulated, costs: {stages: {forward: 1, backward: 2}}}"});
  world.all_ready(name);
  constexpr int64_t kSteps = 30;  // half a second each: measurements are saved every 10 s
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      StepReport report = world.step_report(name, rank, step);
      report.loss.reset();
      world.say("worker-0", report);
    }
    world.tick(500ms);
  }
  ASSERT_EQ(world.state_of(name), JobState::Running) << world.reason_of(name);
  const StoredJob stored = world.archive.jobs()[0];
  EXPECT_EQ(stored.status.step, kSteps);
  ASSERT_TRUE(stored.measurements.contains(1));
  EXPECT_GE(stored.measurements.at(1).steps, 8);
}

}  // namespace
}  // namespace penstock::coordinator
