// Jobs on devices that compute nothing and take their time.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

Registration emulated(const std::string& worker, int devices) {
  Registration registered = registration(worker, 1, devices);
  for (DeviceSlot& slot : registered.devices) slot.kind = "emulated";
  return registered;
}

const JobShape kEmulated = {.device = "{kind: emulated, costs: {stages: {forward: 1, backward: 2}}}"};

TEST(Weights, job_on_emulated_devices_has_none_and_no_loss) {
  World world(with_state());
  world.open(emulated("worker-0", 2));
  const std::string name = world.submit(kEmulated);
  world.all_ready(name);
  for (int64_t step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      StepReport report = world.step_report(name, rank, step);
      report.loss.reset();
      world.say("worker-0", report);
    }
  }
  for (int rank = 0; rank < 2; ++rank)
    world.say("worker-0", RankFinished{world.key(name, rank), RankIndex(rank), {}});
  EXPECT_EQ(world.state_of(name), Succeeded) << world.reason_of(name);
  EXPECT_EQ(messages<Assignment>(world, world.sent)[0].weights.directory, "");
  EXPECT_TRUE(of<CommitWeights>(world.sent).empty());
  const auto view = view_job(world.state, name, true, 0);
  EXPECT_EQ(view->weights_digest, "");
  EXPECT_EQ(view->weights_directory, "");
  EXPECT_EQ(view->loss, std::nullopt);
  EXPECT_EQ(view->step, 3);
}

TEST(Weights, job_that_computes_is_not_placed_on_emulated_devices) {
  World world;
  world.open(emulated("worker-0", 2));
  const std::string name = world.submit({});
  EXPECT_EQ(world.state_of(name), Placing);
  EXPECT_THAT(world.reason_of(name), HasSubstr("waits for 2 more cpu devices"));
}

TEST(Placing, ranks_on_emulated_devices_go_to_one_host) {
  World world;
  for (const char* worker : {"worker-0", "worker-1"}) world.open(emulated(worker, 1));
  const std::string name = world.submit(kEmulated);
  EXPECT_EQ(world.state_of(name), Placing);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("waits for 1 more emulated device on one host (emulated devices share a clock)"));
}

}  // namespace
}  // namespace penstock::coordinator
