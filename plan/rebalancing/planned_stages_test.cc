#include "plan/rebalancing/planned_stages.h"

#include <gmock/gmock.h>

#include "plan/rebalancing/testing/noisy_job.h"
#include "plan/spec/split_source.h"

namespace penstock::plan {
namespace {

using namespace testing;  // job_of and its words
using ::testing::ElementsAre;

TEST(PlannedStages, are_the_mean_until_another_split_was_measured) {
  const Truth truth;
  const JobSpec before = job_of({});
  const MeasuredRun first = measured(before, truth);
  const PlannedStages mean = planned_stages(before, {first});
  EXPECT_EQ(mean.by, PlannedBy::Mean);
  EXPECT_EQ(mean.ms.front(), mean.ms.back());
  JobSpec job = before;
  job.parallel.split = last_lighter_split(job.model, 8);
  const PlannedStages planned = planned_stages(job, {first, measured(job, truth)});
  EXPECT_EQ(planned.by, PlannedBy::EarlierSplits);
  for (size_t stage = 0; stage < planned.ms.size(); ++stage) {
    const auto [forward, backward] = stage_seconds(truth, job.parallel.split[stage]);
    EXPECT_NEAR(planned.ms[stage], 1e3 * (forward + backward), 0.05 * planned.ms[stage]);
  }
}

TEST(PlannedStages, are_the_costs_of_an_emulated_device) {
  const JobSpec job =
      job_of({.pipeline = 2,
              .blocks = 3,
              .split = "{layers: [2, 1]}",
              .more = "device: {kind: emulated, costs: {layers: {embedding: {forward: 1, backward: 2}, "
                      "block: {forward: 10, backward: 20}, head: {forward: 100, backward: 200}}}}\n"});
  const PlannedStages planned = planned_stages(job, {measured(job, {})});
  EXPECT_EQ(planned.by, PlannedBy::DeviceCosts);
  EXPECT_THAT(planned.ms, ElementsAre(63, 330));
}

TEST(PlannedStages, are_what_the_submitted_file_says_of_this_very_split) {
  const auto with_note = [](const std::string& note) {
    return job_of({.pipeline = 2, .blocks = 3, .split = "{layers: [2, 1]}", .more = note});
  };
  const JobSpec plain = with_note("");
  const std::string note = stages_note(plain.parallel.split, {12.25, 0.5});
  EXPECT_EQ(note, "planned stages: 12.25 ms of embedding 0-1 | 0.5 ms of 2 head");
  const JobSpec job = with_note("# split: auto is planned from somewhere\n# " + note + "\n# more\n");
  const PlannedStages planned = planned_stages(job, {measured(job, {})});
  EXPECT_EQ(planned.by, PlannedBy::Submission);
  EXPECT_THAT(planned.ms, ElementsAre(12.25, 0.5));
  for (const std::string other :
       {"planned stages: 12.25 ms of embedding 0-1",
        "planned stages: 12.25 ms of embedding 0 | 0.5 ms of 1-2 head",
        "planned stages: ", "planned stages: nan ms of embedding 0-1 | 0.5 ms of 2 head",
        "planned stages: 12.25 ms of embedding 0-1 | 0.5 ms of 2 head | 1 ms of ", "planned stages: 1e999"}) {
    const JobSpec changed = with_note("# " + other + "\n");
    EXPECT_EQ(planned_stages(changed, {measured(changed, {})}).by, PlannedBy::Mean) << other;
  }
}

}  // namespace
}  // namespace penstock::plan
