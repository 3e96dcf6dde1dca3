// Jobs that begin with another job's checkpoint.
#include <gmock/gmock.h>

#include "coordinator/core/testing/restarted_job.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

TEST(RestartFrom, job_counts_on_from_the_steps_of_another_jobs_checkpoint) {
  World world(with_state());
  const std::string name = world.run(kGoesOn);
  const auto assignments = messages<Assignment>(world, world.sent);
  ASSERT_EQ(assignments.size(), 2u);
  EXPECT_EQ(assignments[0].first_step, 4);
  EXPECT_EQ(assignments[0].load_from, "/other/step-000000004");
  EXPECT_TRUE(
      world.has_told(name, "begins with the checkpoint of step 4 of job other: /other/step-000000004"));
  EXPECT_EQ(world.job(name).status.step, 4);
  world.run_steps(name, 4, 5);
  JobView view = *view_job(world.state, name, true, 0);
  EXPECT_EQ(view.step, 5);
  EXPECT_EQ(view.losses, std::vector<double>{3.0});  // of step 4
  EXPECT_EQ(view.first_step, 4);
  EXPECT_EQ(view.started_from, "/other/step-000000004");
  EXPECT_EQ(view.durable_step, 0);  // none of its own
  world.run_steps(name, 5, 9);
  world.keep(name, 6);
  world.keep(name, 8);
  world.all_finish(name);
  world.tell(
      WeightsCommitted{name, world.job(name).attempt->order, world.job(name).attempt->weights, ok_status()});
  EXPECT_EQ(world.state_of(name), Succeeded);
  EXPECT_EQ(world.archive.find(name)->losses, (std::vector<double>{3.0, 2.75, 2.5, 2.25, 2.0}));
}

TEST(RestartFrom, job_begins_there_again_until_it_has_a_checkpoint_of_its_own) {
  World world(with_state());
  const std::string name = world.run(kGoesOn);
  world.run_steps(name, 4, 5);
  lose_attempt(world, name);
  EXPECT_EQ(world.job(name).status.barren_attempts, 1);
  world.sent.clear();
  world.tick();
  world.tick();
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).load_from, "/other/step-000000004");
  world.all_ready(name);
  world.run_steps(name, 4, 7);  // step 4 once more, with its loss
  ASSERT_EQ(world.state_of(name), Running);
  EXPECT_EQ(world.job(name).losses.size(), 3u);
  world.keep(name, 6);
  lose_attempt(world, name);
  EXPECT_EQ(world.job(name).status.barren_attempts, 0);
  world.sent.clear();
  world.tick();
  world.tick();
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).load_from,
            "/state/jobs/tiny/checkpoints/step-000000006");
  EXPECT_EQ(messages<Assignment>(world, world.sent).at(0).first_step, 6);
}

TEST(RestartFrom, loss_that_comes_out_differently_is_told_with_its_own_step) {
  World world(with_state());
  const std::string name = world.run(kGoesOn);
  world.run_steps(name, 4, 6);
  lose_attempt(world, name);
  world.tick();
  world.tick();
  world.all_ready(name);
  world.all_report(name, 4);
  StepReport other = world.step_report(name, 1, 5);
  other.loss = 7.5;
  world.report(name, 0, 5);
  world.say(world.place_of(name, 1).worker, other);
  EXPECT_THAT(world.reason_of(name),
              HasSubstr("step 5 was done again from the checkpoint of step 4 and must give the "
                        "same loss: expected 2.75, found 7.5"));
}

}  // namespace
}  // namespace penstock::coordinator
